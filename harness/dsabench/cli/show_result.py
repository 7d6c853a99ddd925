"""Print the plan and the result of a study as text and as JSON, and how to continue."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from dsabench.cli.options import StudyOptions, go_on
from dsabench.cli.progress import make_progress
from dsabench.cli.show_plan import plan_facts, print_plan
from dsabench.cli.tables import VerdictTable, titled
from dsabench.config.load import load_eval
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.numerics import changed_numerics
from dsabench.model.record import Failed, Measured, Record
from dsabench.model.runtime import labels_of
from dsabench.model.study_result import Ablation, ObjectiveScore, ScoredSetting, StudyResult, deciding
from dsabench.reporting.numbers import show_count, show_duration, show_figure, show_percent
from dsabench.reporting.site.entry import machine_of
from dsabench.reporting.sweep_plot import draw_sweep
from dsabench.results.ablation import changes_of, has_gain
from dsabench.results.journal import FILE_NAME
from dsabench.results.limits import LimitsOfLoad, limits_of_loads
from dsabench.results.machines import machines_of
from dsabench.results.scores import (
    WorstRegret,
    against_default,
    levels,
    lost_requests,
    rank_key,
    value_of,
    worst_regrets,
)
from dsabench.study.study import Study

_MESSAGE = 300
"""Characters of a fault's message; `results show` prints all of it."""


def print_plan_of(options: StudyOptions, study: Study, more: Mapping[str, object] | None = None) -> None:
    """Print the plan. `more` is added to the JSON object."""
    plan = study.plan(make_progress(study.config.objective.metric))
    if options.json:
        print(json.dumps({**plan_facts(plan), **(more or {})}))
    else:
        print_plan(Console(), plan)


def show_result(options: StudyOptions, study: Study, result: StudyResult) -> None:
    """Print settings, verdicts, gate and places of files, and draw the picture."""
    plot = draw_sweep(study.config, result, study.folder)
    print_result(Console(), study.config, study.folder / FILE_NAME, result, plot)
    if options.conclude:
        print(f"Verdict from existing records of {environment_in_words(result.environment)}.")


def print_result_of(options: StudyOptions, study: Study, result: StudyResult) -> None:
    """Print the result as JSON, or as text with what is left and how to continue."""
    if options.json:
        print(json.dumps(study_facts(options, study, result)))
    else:
        show_result(options, study, result)
        say_next(options, result)


def study_facts(options: StudyOptions, study: Study, result: StudyResult) -> dict[str, object]:
    """The result as a JSON object, with what is left."""
    plot, left = draw_sweep(study.config, result, study.folder), result.left
    return {
        **result_facts(study.config, study.folder / FILE_NAME, result, plot),
        "environment": {"fingerprint": result.environment.fingerprint, "is": environment_in_words(result.environment)},
        "left": {"boots": left.boots, "trials": left.trials, "estimated_s": round(left.seconds, 1)},
        "go_on": go_on(options, result),
    }


def environment_in_words(environment: Environment) -> str:
    """Machine, driver and runtime."""
    runtime, driver = environment.runtime, environment.hardware.driver
    parts = [machine_of(environment), *([f"driver {driver}"] if driver else []), f"{runtime.kind} {runtime.version}"]
    return ", ".join(parts)


def say_next(options: StudyOptions, result: StudyResult) -> None:
    """Print what is left and the command that continues; if nothing is left, how to measure again."""
    left = result.left
    if left.boots:
        time_s = show_duration(left.seconds)
        where = ", on a machine like that of the records," if options.conclude else ""
        print(
            f"Left: {show_count(left.boots, 'boot')}, {show_count(left.trials, 'trial')}, about {time_s}. Continue{where} with:"
        )
        print(f"  {go_on(options, result)}")
        return
    if result.measured_now == 0 and not options.conclude:
        print(_nothing_done(options, result))
    if (boots := _boots_that_decide(result)) is not None:
        more = replace(options, confirm_boots=boots).resume_command()
        print(f"Undecided. {boots} boots per side would probably tell. Continue with:\n  {more}")


def say_what_it_needs(study: Study, result: StudyResult, command: str) -> None:
    """Print the command that takes a proven winner of several changes apart."""
    config, best = study.config, result.best
    if result.left.boots or result.is_refused or result.ablation is not None or best is None:
        return
    if config.budget.why_no_ablation is not None or not has_gain(config.objective, result.verdicts):
        return
    changes = len(changes_of(config, best.spec))
    if changes > 1:
        boots = config.budget.ablate_boots * (changes + 1)
        print(f"It has {changes} changes. Which of them it needs, {boots} boots or a few more would tell:\n  {command}")


def _boots_that_decide(result: StudyResult) -> int | None:
    """Boots per side that decide every inconclusive verdict on the objective; None if there is none, or if too many."""
    if not result.verdicts:
        return None
    metric = result.verdicts[0].metric
    families = (result.verdicts, *(one.verdicts for one in result.rivals))
    undecided = [one for family in families for one in family if one.metric == metric and one.verdict == "inconclusive"]
    return max((one.boots_needed or 0 for one in undecided), default=0) or None


def exit_code(result: StudyResult) -> int:
    """1 if the gate refuses the best setting, 3 if everything failed, else 0."""
    if result.is_refused:
        return 1
    return 0 if any(record.outcome.kind != "failed" for record in result.records) else 3


def _nothing_done(options: StudyOptions, result: StudyResult) -> str:
    """Why a run measured nothing, and how to measure more."""
    again = f"{options.resume_command()} --again"
    if not result.records or result.unconfirmed:
        return f"Nothing was measured: {result.stopped or 'there is nothing to try'}."
    failed = sum(record.outcome.kind == "failed" for record in result.records)
    what = "everything" if result.stopped is None else "what the budget allows"
    if failed:
        return f"Nothing to do: {what} is tried, {show_count(failed, 'trial')} failed (dsabench results list --failed). Measure again with: {again}"
    return f"Nothing to do: {what} is measured. Measure again with: {again}"


def print_result(console: Console, config: StudyConfig, journal: Path, result: StudyResult, plot: Path | None) -> None:
    """Print the measured settings, the verdicts of best against default, and the places of files."""
    metric = config.objective.metric
    if result.candidates:
        console.print(_settings_table(config, result, metric))
    if result.verdicts:
        _print_verdicts(console, config, result)
    elif result.best is None:
        console.print(_no_challenger(config, result))
    _print_ablation(console, config, result.ablation)
    print_gate(console, result)
    _print_unguarded(console, config, result)
    for line in _failures(config, result):
        console.print(line, markup=False, highlight=False, style="red")
    for warning, count in _warnings(result.records).most_common():
        console.print(
            f"warning ({show_count(count, 'trial')}): {warning}", markup=False, highlight=False, style="yellow"
        )
    if result.stopped:
        console.print(f"Stopped because {escape(result.stopped)}.", highlight=False)
    if (caveat := runtime_kinds()[config.runtime.kind].caveat) is not None:
        console.print(caveat, style="dim")
    console.print(_counted(result), highlight=False)
    for name, path in (("journal", journal), ("plot", plot)):
        if path is not None:
            console.print(f"{name}: {path}", markup=False, highlight=False, soft_wrap=True)


def _counted(result: StudyResult) -> str:
    """How many trials the result uses, and of which round if there are several."""
    failed = sum(record.outcome.kind == "failed" for record in result.records)
    phases = Counter(record.phase for record in result.records)
    of_phase = f"{phases['search'] + phases['gate']} of the search and {phases['confirm']} of the confirmation"
    if phases["ablate"]:
        of_phase = f"{phases['search']} of the search, {phases['confirm']} of the confirmation and {phases['ablate']} of the ablation"
    text = f"{len(result.records)} trials, {of_phase} ({failed} failed), {result.measured_now} of them measured now"
    if (machines := len(machines_of(result.records))) > 1:
        text += f", on {machines} machines: the search compares settings only as far as these are alike"
    if not result.round:
        return text
    return f"{text}\nThis is round {result.round} (--again) alone; `dsabench report` combines all rounds."


def _print_verdicts(console: Console, config: StudyConfig, result: StudyResult) -> None:
    """Print best against default, then against each alternative, and what limited them."""
    label = "" if result.best is None else result.best.label
    turns = f"{result.turns}, {result.stopped_early}" if result.stopped_early else result.turns
    against = [("the default", result.verdicts, turns)]
    for name, verdicts, turns in (*against, *((one.label, one.verdicts, one.turns) for one in result.rivals)):
        boots = verdicts[0]
        title = f"{label}\nagainst {name}, {boots.n_candidate} and {boots.n_base} boots {turns}"
        console.print(VerdictTable(verdicts, f"{title}, intervals of {levels(verdicts, result.level)}"))
        for verdict in verdicts:
            if verdict.metric == config.objective.metric:
                console.print(escape(f"{verdict.workload}: {verdict.verdict}; {verdict.reason}"), highlight=False)
    for one in _limits(config, result):
        console.print(f"limit under {one.words}", markup=False, highlight=False)


def _print_ablation(console: Console, config: StudyConfig, found: Ablation | None) -> None:
    """Print what each change of the winner gives, and what of it is left."""
    if found is None:
        return
    change_of = {id(verdict): one.change for one in found.changes for verdict in one.verdicts}
    verdicts = [verdict for one in found.changes for verdict in one.verdicts]
    if verdicts:
        title = f"What each change of {found.winner.changes(config.default)} gives\nagainst the same without it, boots in turns"
        console.print(VerdictTable(verdicts, title, lambda verdict: change_of[id(verdict)]))
    for one in found.changes:
        console.print(f"{one.change}: {one.decision}; {one.reason}", markup=False, highlight=False)
    console.print(found.says(config.default), style="bold", markup=False, highlight=False)


def print_gate(console: Console, result: StudyResult) -> None:
    """Print the settings that the gate refused, with their figures, and its verdict on the best one."""
    for one in result.passed_over:
        if (verdict := deciding(one.accuracy)) is not None:
            text = f"refused by the gate: {one.candidate.label}: {verdict.workload}: {verdict.reason}"
            console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    for verdict in result.gates:
        words, style = ("refused by the gate", "bold red") if verdict.is_refusal else ("passed the gate", "green")
        if verdict.n_base == 0:
            words, style = "not decided by the gate", "bold yellow"
        text = f"{words}, {verdict.workload}: {verdict.reason}"
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _failures(config: StudyConfig, result: StudyResult) -> Iterator[str]:
    """What failed, and what the search avoided for that."""
    for fault, count in _faults(config, result.records).most_common():
        yield f"failed ({show_count(count, 'trial')}): {fault}"
    for one in result.families:
        left = f"{show_count(one.left, 'setting')} like them {'was' if one.left == 1 else 'were'} put last"
        yield f"{one.failed} settings with {one.setting} failed ({', '.join(one.faults)}): {left}"


def _limits(config: StudyConfig, result: StudyResult) -> tuple[LimitsOfLoad, ...]:
    sides = (config.default, None if result.best is None else result.best.spec)
    default, best = ([one for one in result.records if one.trial.runtime == side] for side in sides)
    return limits_of_loads([one.name for one in config.workloads], default, best)


def _print_unguarded(console: Console, config: StudyConfig, result: StudyResult) -> None:
    for line in _unguarded(config, result):
        console.print(line, style="yellow", markup=False, highlight=False)


def _unguarded(config: StudyConfig, result: StudyResult) -> Iterator[str]:
    """What the speed of the best setting does not prove, if nothing else here says so."""
    if result.best is None:
        return
    lost, sent = lost_requests(record for record in result.records if record.trial.runtime == result.best.spec)
    if lost:
        yield f"lost {lost} of {sent} requests in its boots: it may not become a default, however fast the others were"
    if labels := labels_of(result.best.spec):
        yield f"measured with {', '.join(labels)}: speeds are valid for these shapes, outputs mean nothing"
    if result.gate is None and (knobs := changed_numerics(config.default, result.best.spec)):
        why = "the gate was not reached" if config.gates else "the config has no gate"
        yield f"may change answers ({', '.join(knobs)}): accuracy unproven, {why}"


def result_facts(config: StudyConfig, journal: Path, result: StudyResult, plot: Path | None) -> dict[str, object]:
    """The result as a JSON object."""
    return {
        "study": config.name,
        "journal": str(journal),
        "plot": None if plot is None else str(plot),
        "round": result.round,
        "trials": len(result.records),
        "failed": sum(record.outcome.kind == "failed" for record in result.records),
        "faults": dict(_faults(config, result.records)),
        "measured_now": result.measured_now,
        "stopped": result.stopped,
        "unconfirmed_boots": result.unconfirmed,
        "objective": config.objective.model_dump(),
        "default": dict(config.default.knobs),
        "best": None if result.best is None else _candidate_json(result.best, result),
        "candidates": [_candidate_json(candidate, result) for candidate in result.candidates],
        "verdicts": [verdict.model_dump() for verdict in result.verdicts],
        "limits": [
            {
                "workload": one.workload,
                "default": None if one.default is None else one.default.model_dump(),
                "best": None if one.best is None else one.best.model_dump(),
            }
            for one in _limits(config, result)
        ],
        "failing_families": [
            {"setting": one.setting, "failed": one.failed, "faults": list(one.faults), "left": one.left}
            for one in result.families
        ],
        "turns": result.turns,
        "stopped_early": result.stopped_early,
        "rivals": [
            {"label": rival.label, "verdicts": [verdict.model_dump() for verdict in rival.verdicts]}
            for rival in result.rivals
        ],
        "ablation": None if result.ablation is None else _ablation_json(config, result.ablation),
        "gate": None if result.gate is None else result.gate.model_dump(),
        "gates": [verdict.model_dump() for verdict in result.gates],
        "unguarded": list(_unguarded(config, result)),
        "passed_over": [
            {
                **_candidate_json(one.candidate, result),
                "gate": None if (verdict := deciding(one.accuracy)) is None else verdict.model_dump(),
            }
            for one in result.passed_over
        ],
    }


def _ablation_json(config: StudyConfig, found: Ablation) -> dict[str, object]:
    return {
        "of": found.winner.changes(config.default),
        "changes": [
            {
                "change": one.change,
                "decision": one.decision,
                "reason": one.reason,
                "verdicts": [verdict.model_dump() for verdict in one.verdicts],
            }
            for one in found.changes
        ],
        "reduced": None if found.reduced is None else dict(found.reduced.knobs),
        "together": [verdict.model_dump() for verdict in found.joint],
        "not_adopted": found.not_adopted or None,
        "says": found.says(config.default),
    }


def _candidate_json(candidate: ScoredSetting, result: StudyResult) -> dict[str, object]:
    id_ = candidate.spec.id
    return {
        "label": candidate.label,
        "knobs": dict(candidate.spec.knobs),
        "value": candidate.score.value,
        "violation": candidate.score.violation,
        "why_not": candidate.score.why_not,
        "accuracy": {name: scores[id_] for name, scores in result.accuracy.items() if id_ in scores},
    }


def _no_challenger(config: StudyConfig, result: StudyResult) -> str:
    """Why there is nothing to compare with the default."""
    of_default = [record for record in result.records if record.trial.runtime == config.default]
    if of_default and not any(isinstance(record.outcome, Measured) for record in of_default):
        boots = len({record.boot for record in of_default})
        return (
            f"The default gave no number in {boots} boot{'s' if boots > 1 else ''}: there is nothing to compare with."
        )
    if not of_default:
        return "Nothing was measured."
    others = [candidate for candidate in result.candidates if candidate.spec != config.default]
    if not others:
        return "Only the default was measured: nothing to compare."
    if all(candidate.score.value is None for candidate in others):
        return "Every setting other than the default failed: nothing to compare (dsabench results list --failed)."
    return "No setting other than the default met the constraints: nothing to compare."


def _faults(config: StudyConfig, records: tuple[Record, ...]) -> Counter[str]:
    """How often each failure occurred. Messages that differ only in numbers count as one."""
    kinds: dict[tuple[bool, str], str] = {}
    counts: Counter[str] = Counter()
    for record in records:
        outcome = record.outcome
        if not isinstance(outcome, Failed):
            continue
        is_default = record.trial.runtime == config.default
        whose, message = "the default" if is_default else "other settings", outcome.message[:_MESSAGE]
        said = f"{whose} in {outcome.stage}: {outcome.fault}: {message}"
        counts[kinds.setdefault((is_default, re.sub(r"[\d.,]+", "#", said)), said)] += 1
    return counts


def _warnings(records: tuple[Record, ...]) -> Counter[str]:
    """How often each kind of warning occurred. Warnings that differ only in numbers count as one."""
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for record in records:
        outcome = record.outcome
        for warning in outcome.warnings if isinstance(outcome, Measured) else ():
            # A percentile that was refused for too few requests; `results show` lists these.
            if warning.startswith("no p"):
                continue
            kind = re.sub(r"[\d.,]+", "#", warning)
            counts[kinds.setdefault(kind, warning)] += 1
    return counts


def _settings_table(config: StudyConfig, result: StudyResult, metric: str) -> Group:
    evals, values, ranked = _evals(config, result), _values(result, metric), result.candidates
    default = next((one.score for one in ranked if one.spec == config.default), ObjectiveScore(None, 0.0))
    has_notes = any(candidate.score.why_not for candidate in ranked)
    feasible = {one.spec.id: values.get(one.spec.id, {}) for one in ranked if one.score.is_feasible}
    has_room = len(config.workloads) > 1 and not evals  # of 80 columns
    regrets = worst_regrets(config.objective.direction, feasible) if has_room else {}
    figures = [*(workload.name for workload in config.workloads), "vs default", *map(_in_lines, evals)]
    figures += ["worst\nregret"] if regrets else []
    rows, is_default = list[list[str]](), list[bool]()
    for candidate in sorted(ranked, key=lambda one: rank_key(config.objective, one.score), reverse=True):
        found = values.get(candidate.spec.id, {})
        is_default.append(candidate.spec == config.default)
        change = None if is_default[-1] else against_default(candidate.score, default)
        scores = [show_figure(result.accuracy[name].get(candidate.spec.id)) for name in evals]
        worst = [_regret_words(regrets.get(candidate.spec.id))] if regrets else []
        notes = [_note(candidate.score, evals)] if has_notes else []
        cells = [show_figure(found.get(workload.name)) for workload in config.workloads]
        rows.append([candidate.label, *cells, show_percent(change), *scores, *worst, *notes])

    setting_width, note_width = _widths(rows, figures)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("setting", overflow="fold", min_width=setting_width)
    for heading in figures:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    if has_notes:
        table.add_column("note", overflow="fold", max_width=note_width)
    for row, bold in zip(rows, is_default, strict=True):
        table.add_row(*map(escape, row), style="bold" if bold else None)
    return titled(f"{config.name}: {metric} by setting (search, each measured once)", table)


def _note(score: ObjectiveScore, evals: Sequence[str]) -> str:
    """Why it is not feasible; beside the scores themselves without what a gate's refusal says of them."""
    why_not = score.why_not or ""
    return why_not.partition(": ")[0] if evals and why_not.startswith("less accurate: ") else why_not


def _widths(rows: Sequence[Sequence[str]], figures: Sequence[str]) -> tuple[int, int]:
    """(setting, note): columns for the longest `knob=value`, which is read and copied as a word, and what is left of 80 for the note.

    A row is a setting, its figures, whose headings are given, and a note where there are notes.
    """
    columns = [(heading, *(row[number] for row in rows)) for number, heading in enumerate(figures, 1)]
    taken = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    settings = [len(word) for row in rows for word in row[0].split()]
    notes = [len(word) for row in rows for note in row[1 + len(figures) :] for word in note.split()]
    room = 80 - sum(taken) - 2 * len(taken) - (4 if notes else 2)
    setting = max(10, min(max(settings, default=0), room - min(max(notes, default=0), 14)))
    return setting, max(room - setting, 8)


def _in_lines(name: str) -> str:
    """An eval's name with a line for each of its words."""
    return name.replace("-", "-\n")


def _evals(config: StudyConfig, result: StudyResult) -> list[str]:
    """Names of the evals whose scores stand beside the speed; where answers are held against the default's, a score says nothing."""
    scored = (load_eval(gate.eval).name for gate in config.gates if gate.measure == "score")
    return [name for name in scored if name in result.accuracy]


def _values(result: StudyResult, metric: str) -> dict[str, dict[str, float]]:
    """Setting → workload → what the search measured first."""
    found: dict[str, dict[str, float]] = {}
    for record in result.records:
        known = value_of(record, metric) if record.phase == "search" else None
        if known is not None:
            found.setdefault(record.trial.runtime.id, {}).setdefault(record.trial.workload.name, known.value)
    return found


def _regret_words(worst: WorstRegret | None) -> str:
    if worst is None:
        return "–"
    return f"{100 * worst.share:.1f} %, {worst.workload}" if worst.share else "0"

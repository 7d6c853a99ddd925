"""Print what `--dry-run` tells: the plan, what the rules refuse, how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsabench.config.runtime_kinds import boot_of, runtime_kinds
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.bottleneck import LIMIT_NAMES
from dsabench.model.space import base_assignment
from dsabench.model.study import Axis, Objective
from dsabench.model.verdict import BOOTS_MIN
from dsabench.reporting.numbers import show_count, show_dollars, show_duration
from dsabench.study.forecast import gate_lines
from dsabench.study.memory import REMEMBERED
from dsabench.study.plan import DryRun, GpuHours
from dsabench.study.proposers import startup_of
from dsabench.study.space_check import Overruled, SpaceCheck


def print_plan(console: Console, dry_run: DryRun) -> None:
    """Print what a sweep would measure, and how long it takes."""
    plan, rest = dry_run.plan, dry_run.left
    config, cost, done = plan.config, plan.cost, plan.boots_done
    size = f"{show_count(plan.space.settings, 'setting')} × {show_count(len(config.workloads), 'workload')}"
    console.print(f"{config.name}: {size}", style="italic", markup=False, highlight=False)
    console.print(_facts_table(dry_run))
    console.print(_plan_table(dry_run) if rest.boots else f"{config.name}: nothing is left to measure")
    of_default = (f"the default: {note.line}" for note in dry_run.notes)
    for line in (*of_default, *_refused_lines(plan.space), *_overruled_lines(dry_run.overruled)):
        console.print(line, highlight=False, markup=False, style="yellow")
    basis = "from this study's records" if cost.measured else _assumed(config)
    first = f" ({cost.compile_s:.0f} s more for the first)" if cost.compile_s else ""
    per = f"{cost.boot_s:.1f} s a boot{first}, {cost.trial_s:.1f} s a trial, {basis}"
    if rest.boots:
        words = f"{show_count(rest.boots, 'boot')}, {show_count(rest.trials, 'trial')}{' left' if done else ''}"
        console.print(f"{words}, about {show_duration(rest.seconds)} ({per})", highlight=False)
    if plan.boots_saved:
        names = " and ".join(sorted(config.reload_free))
        saved = f"{show_count(plan.boots_saved, 'boot')} saved, about {show_duration(plan.boots_saved * cost.boot_s)}"
        console.print(f"{saved}: {names} changes on the running server", highlight=False)
    for gate in gate_lines(config, cost, plan.to_score):
        console.print(gate, highlight=False, markup=False)
    if dry_run.gpu_hours is not None and rest.boots:
        console.print(_gpu_hours(dry_run.gpu_hours, dry_run.dollars), highlight=False)
    if dry_run.ablation is not None:
        console.print(dry_run.ablation.line(), highlight=False)
    if done:
        again = "" if rest.boots else ", 0 left; --again measures them once more"
        console.print(
            f"{show_count(done, 'boot')} {'is' if done == 1 else 'are'} recorded already{again}", highlight=False
        )
    if config.runtime.hardware is None and config.runtime.kind == "sglang" and plan.space.asked:
        console.print("runtime.hardware is not set: rules about hardware were not checked", highlight=False)


def _assumed(config: StudyConfig) -> str:
    """The assumptions of an estimate, before anything is measured."""
    kind = runtime_kinds()[config.runtime.kind]
    speeds = (
        f", {kind.stream_tok_s:.0f} tokens/s a stream and {kind.prefill_tok_s:,.0f} prompt tokens/s"
        if kind.stream_tok_s and kind.prefill_tok_s
        else ""
    )
    return f"assumed, because nothing is measured yet{speeds}"


def _facts_table(dry_run: DryRun) -> Table:
    """Runtime, search space, objective, workloads, and what happens at the end."""
    config, space = dry_run.plan.config, dry_run.plan.space
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def add(name: str, lines: Iterable[str]) -> None:
        for index, line in enumerate(lines):
            table.add_row(name if index == 0 else "", escape(line))

    knobs = " ".join(f"{knob}={value}" for knob, value in config.default.knobs.items())
    add("default", [f"{config.runtime.model}: {knobs or 'no knobs set'}"])
    add("command", _commands(dry_run) or [f"attaches to {config.runtime.base_url}"])
    add("axes", map(partial(_axis, config), config.space.axes))
    add(
        "never runs",
        (f"{one.knob}={one.value} ({show_count(one.points, 'point')}): {one.line}" for one in space.never_runs),
    )
    add("memory", _memory_lines(dry_run))
    add("objective", [_objective(config.objective), *_not_proposed(config)])
    add("loads", (load.in_words for load in config.workloads))
    add("at the end", [_end(config)])
    return table


def _memory_lines(dry_run: DryRun) -> Iterator[str]:
    """What the default takes of a rank's memory, and how many settings take too much."""
    base = base_assignment(dry_run.plan.config.space, dry_run.plan.config.default.knobs)
    for setting, told in dry_run.memory:
        if setting == base:
            yield (
                f"{told.weights_gib:.1f} GiB weights, {told.kv_pool_gib:.1f} GiB KV pool ({told.kv_tokens:,} tokens), "
                f"{told.beside_gib:.1f} GiB graphs and tables; a prefill step of {told.step_tokens:,} tokens takes "
                f"{told.step_gib:.1f} of the other {told.left_gib + told.step_gib:.1f} GiB"
            )
    verdicts = Counter(told.verdict for _, told in dry_run.memory)
    if verdicts["runs out"] or verdicts["may run out"]:
        yield (
            f"foreseen of {len(dry_run.memory):,} settings: {verdicts['runs out']:,} run out in prefill, {verdicts['may run out']:,} may"
        )


def _commands(dry_run: DryRun) -> tuple[str, ...]:
    # It imports everything about SGLang's flags, which only a plan needs.
    from dsabench.cli.run_launch import baseline_command

    try:
        config = dry_run.plan.config
        return baseline_command(config.runtime, config.default, dry_run.version)
    except InputError as error:  # a plan is useful even for a version without described flags
        return (f"not written: {error}",)


def _axis(config: StudyConfig, axis: Axis) -> str:
    """Such as `prefill_backend: flashmla_sparse, flashmla_kv (where kv_cache_dtype=fp8_e4m3)`."""
    when = " ".join(f"{knob}={value}" for knob, value in config.space.when.get(axis.name, {}).items())
    lifts = config.space.when_bound.get(axis.name)
    early = "" if lifts is None else f" (early where {LIMIT_NAMES[lifts]} is the limit)"
    return f"{axis.name}: {', '.join(map(str, axis.values))}{f' (where {when})' if when else ''}{early}"


def _objective(objective: Objective) -> str:
    """Such as `maximize output_throughput_tok_s, with ttft_ms.p90 at most 500`."""
    limits = [
        f"{limit.metric} {word} {bound:g}"
        for limit in objective.constraints
        for word, bound in (("at least", limit.min), ("at most", limit.max))
        if bound is not None
    ]
    limited = f", with {' and '.join(limits)}" if limits else ""
    return f"{objective.direction} {objective.metric}{limited}"


def _not_proposed(config: StudyConfig) -> Iterator[str]:
    """The values that cannot win, since they change more than rounding and no eval asks."""
    apart = [rule for rule in config.searched_space.forbid if rule not in config.space.forbid]
    if config.objective.numerics == "same":
        values = ", ".join(f"{knob}={value}" for rule in apart for knob, value in rule.items()) or "no value of an axis"
        yield f"same numerics as the default: {values} {'is' if len(apart) < 2 else 'are'} measured only where `first` lists it, and cannot win"


def _end(config: StudyConfig) -> str:
    """What the confirmation and the gate do."""
    boots = config.budget.confirm_boots
    if boots == 0:
        return "the best setting of the search is reported without a confirmation (confirm_boots: 0)"
    names = [gate.eval for gate in config.gates]
    says = "decide together" if len(names) > 1 else "decides"
    gate = f", and {' and '.join(names)} {says} whether it is as accurate" if names else ""
    times = f"{BOOTS_MIN} to {boots} times each" if config.budget.stop_when_decided else f"{boots} times each"
    ends = ", until it is decided" if config.budget.stop_when_decided else ""
    more = (
        f"; a winner is then booted {config.budget.ablate_boots} times without each of its changes"
        if config.budget.ablate
        else ""
    )
    sides = "the two best settings" if config.budget.confirm_second else "the best setting"
    return f"{sides} and the default are booted {times}, in turns{ends}; the verdict uses these boots{gate}{more}"


def _gpu_hours(spent: GpuHours, dollars: float | None) -> str:
    """Such as `about 21.3 GPU-hours, $53`, and how boots with unknown settings are counted."""
    open_boots = f"{show_count(spent.open_boots, 'boot')} of unknown settings"
    counted = f" ({open_boots} count as {spent.gpus_each} GPUs each, the largest)" if spent.open_boots else ""
    price = "" if dollars is None else f", {show_dollars(dollars)}"
    return f"about {spent.hours:.1f} GPU-hours{price}{counted}"


def plan_facts(dry_run: DryRun) -> dict[str, object]:
    """The plan as a JSON object."""
    plan, left, space, overruled = dry_run.plan, dry_run.left, dry_run.plan.space, dry_run.overruled
    config = plan.config
    return {
        "study": config.name,
        "baseline": dict(config.default.knobs),
        "baseline_command": list(_commands(dry_run)),
        "axes": [
            {
                "knob": axis.name,
                "values": list(axis.values),
                "when": dict(config.space.when.get(axis.name, {})),
                "when_bound": config.space.when_bound.get(axis.name),
            }
            for axis in config.space.axes
        ],
        "objective": config.objective.model_dump(include={"metric", "direction", "numerics"}),
        "constraints": [limit.model_dump(exclude_none=True) for limit in config.objective.constraints],
        "settings_to_search": space.settings,
        "never_runs": [
            {"knob": one.knob, "value": one.value, "points": one.points, "rule": one.rule, "line": one.line}
            for one in space.never_runs
        ],
        "seconds": round(left.seconds, 1),
        "boots": plan.boots_total,
        "boots_saved": plan.boots_saved,
        "trials": plan.trials_total,
        "left": {"boots": left.boots, "trials": left.trials},
        "estimated_s": round(left.seconds, 1),
        "gpu_hours": None if dry_run.gpu_hours is None else round(dry_run.gpu_hours.hours, 2),
        "dollars": None if dry_run.dollars is None else round(dry_run.dollars, 2),
        "gate_s": round(plan.cost.evals_s, 1),
        "ablation_at_most": None if dry_run.ablation is None else asdict(dry_run.ablation),
        "estimate_from": "records" if plan.cost.measured else "assumptions",
        "gate": config.model_dump(include={"gate"})["gate"],
        "workloads": [workload.name for workload in config.workloads],
        "load_points": [workload.model_dump(mode="json", exclude_none=True) for workload in config.workloads],
        "refused": {
            "points": space.refused,
            "asked": space.asked,
            "all_asked": space.is_whole,
            "by_rule": dict(space.by_rule),
            "lines": dict(space.lines),
        },
        "overruled": {
            "points": overruled.points,
            "asked": overruled.asked,
            "by_rule": dict(overruled.by_rule),
            "lines": dict(overruled.lines),
        },
        "memory": [
            {"setting": dict(setting), "verdict": told.verdict, **asdict(told, dict_factory=_rounded)}
            for setting, told in dry_run.memory
        ],
        "notes": [note.line for note in dry_run.notes],
        "settings": [
            {
                "label": one.label,
                "knobs": dict(one.spec.knobs),
                "refused": None if one.refusal is None else one.refusal.line,
                "missing": one.missing,
            }
            for one in dry_run.upcoming
        ],
    }


def _rounded(fields: Iterable[tuple[str, object]]) -> dict[str, object]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in fields}


def _plan_table(dry_run: DryRun) -> Table:
    """The remaining boots, one per row."""
    config, rest = dry_run.plan.config, dry_run.left
    ahead = dry_run.upcoming if rest.search_boots else ()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("boot", "phase", "setting"):
        table.add_column(column, justify="right" if column == "boot" else "left", overflow="fold")
    boots = dict[str, int]()
    for one in ahead:
        if one.missing == 0:
            continue
        if one.refusal is None:
            boot = boot_of(one.spec)
            number = "" if boot in boots else str(boots.setdefault(boot, len(boots) + 1))
            table.add_row(number, "search", escape(one.label))
        else:
            table.add_row("–", "refused", escape(f"{one.label} ({one.refusal.rule})"))
    unseen = rest.search_boots - len(boots)
    if unseen > 0:
        # Settings that fail prolong the start-up.
        startup, known = startup_of(config), sum(one.refusal is None for one in dry_run.upcoming)
        first = min(unseen, max(0, startup.settings - known))
        if first:
            table.add_row(f"+{first}", "search", f"start-up: {startup.chosen}")
        if unseen > first:
            table.add_row(f"+{unseen - first}", "search", f"chosen by {config.proposer.kind} from the results so far")
    if rest.confirm_boots:
        others = ", settings of `first`" * config.budget.confirm_first
        others += ", the best that computes the same" * config.budget.confirm_exact
        others += ", the second best" * config.budget.confirm_second
        sides = f"default{others} and best"
        table.add_row(f"+{rest.confirm_boots}", "confirm", f"{sides} in turns")
    if rest.ablate_boots:
        table.add_row(f"+{rest.ablate_boots}", "ablate", "the winner and itself without each change in turns")
    return table


def _refused_lines(space: SpaceCheck) -> list[str]:
    """How many points the rules refuse, and by which rules."""
    if not space.refused:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in space.by_rule.items())
    of = f"{space.asked} points" if space.is_whole else f"{space.asked} sampled points of a larger space"
    remembered = space.by_rule.keys() == {REMEMBERED}
    by, where = ("earlier records", "docs/sweep.md") if remembered else ("the rules", "docs/sglang-rules.md")
    head = f"{space.refused} of {of} are refused by {by}, without a boot: {rules} ({where})"
    return [head, *(f"  {space.lines[rule]}" for rule in space.by_rule)]


def _overruled_lines(found: Overruled) -> list[str]:
    """How many other points would run with other values than requested, and why."""
    if not found.points:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in found.by_rule.items())
    head = f"{found.points} of the {found.asked} others would run with other values than requested, and still cost a boot: {rules}"
    return [head, *(f"  {found.lines[rule]}" for rule in found.by_rule)]

"""What `--dry-run` prints: the boots ahead, what the rules refuse, how long it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from dsabench.cli.figures import show_count, show_duration
from dsabench.cli.titled_table import titled
from dsabench.model.runtime import RuleNote
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import Purse
from dsabench.study.plan import Forecast, PlannedSetting, WorkLeft, foresee, rest_of
from dsabench.study.session import Outlook
from dsabench.study.space_check import Overruled, Survey, sample, survey_overruled


@dataclass(frozen=True, slots=True)
class GpuHours:
    """What boots cost. Of those whose setting is not known yet, each is counted at the largest setting's GPUs."""

    hours: float
    open_boots: int
    """Boots of settings that the proposer is still to choose, and of the confirmation."""
    gpus_each: int

    @property
    def words(self) -> str:
        """`about 21.3 GPU-hours`, and how open boots are counted."""
        open_boots = f"{show_count(self.open_boots, 'boot')} of settings still open"
        counted = f" ({open_boots} count {self.gpus_each} each, as the largest)" if self.open_boots else ""
        return f"about {self.hours:.1f} GPU-hours{counted}"


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that is not begun."""

    ledger: StudyRecords
    purse: Purse
    forecast: Forecast
    outlook: Outlook = field(default_factory=Outlook)

    def overruled(self) -> Overruled:
        """The points that would run otherwise than they ask."""
        return survey_overruled(self.ledger.config, self.forecast.refused.passed, self.outlook.annotate)

    def notes(self) -> tuple[RuleNote, ...]:
        """What the rules say of the default, against which all else is measured."""
        return self.outlook.annotate(self.ledger.config.default)

    @cached_property
    def ahead(self) -> list[PlannedSetting]:
        """The settings of the search that are certain."""
        return foresee(self.ledger, self.purse.round, self.forecast.search_boots(), self.outlook.refuse)

    def rest(self) -> WorkLeft:
        """What is not recorded yet."""
        return rest_of(self.purse, self.forecast, self.ahead)

    def left_s(self) -> float:
        """Seconds that the rest takes."""
        return self.seconds_of(self.rest())

    def seconds_of(self, rest: WorkLeft) -> float:
        """Seconds that so much takes, in all lanes at once."""
        if not rest.boots:
            return 0.0
        turns = math.ceil(rest.boots / self.purse.lanes)
        return self.forecast.costs().of(turns, math.ceil(turns * rest.trials / rest.boots))

    def gpu_hours(self) -> GpuHours | None:
        """GPUs × hours of the boots that are left; None where no GPU is known of."""
        rest, ahead, gpus = self.rest(), [one for one in self.ahead if one.refusal is None], self.outlook.gpus
        known = [one.spec for one in ahead if one.missing] if rest.search_boots else []
        possible, unseen = [one.spec for one in ahead], rest.search_boots - len(known)
        if unseen > 0:
            possible += map(self.ledger.config.spec, sample(self.ledger.config)[0])
        largest, open_boots = self.outlook.largest(possible), unseen + rest.confirm_boots
        if largest == 0:
            return None
        boot_h = self.forecast.costs().of(1, len(self.ledger.config.workloads)) / 3600
        return GpuHours((sum(map(gpus, known)) + open_boots * largest) * boot_h, open_boots, largest)


def print_plan(console: Console, plan: SweepPlan) -> None:
    """What a sweep would measure, and how long that would take."""
    forecast, config, cost = plan.forecast, plan.ledger.config, plan.forecast.costs()
    rest, done = plan.rest(), forecast.boots_done()
    console.print(_plan_table(plan, rest) if rest.boots else f"{config.name}: nothing is left to measure")
    of_default = (f"the default: {note.line}" for note in plan.notes())
    for line in (*of_default, *_refused_lines(forecast.refused), *_overruled_lines(plan.overruled())):
        console.print(line, highlight=False, markup=False, style="yellow")
    basis = (
        "from this study's records"
        if cost.measured
        else "assumed: nothing is measured yet, and a load of many or long prompts takes longer"
    )
    per = f"{cost.boot_s:.1f} s a boot, {cost.trial_s:.1f} s a trial, {basis}"
    if rest.boots:
        words = f"{show_count(rest.boots, 'boot')}, {show_count(rest.trials, 'trial')}{' left' if done else ''}"
        console.print(f"{words}, about {show_duration(plan.left_s())} ({per})", highlight=False)
    if (gate := config.gate) is not None:
        text = f"gate: {gate.eval}, repeat {gate.repeat}, in the last boot of each side; finalists: {gate.finalists} at most; its answers take time beyond the estimate"
        console.print(text, highlight=False, markup=False)
    spent = plan.gpu_hours()
    if spent is not None and rest.boots:
        console.print(spent.words, highlight=False)
    if done:
        again = "" if rest.boots else ", 0 left; --again measures them once more"
        console.print(
            f"{show_count(done, 'boot')} {'is' if done == 1 else 'are'} recorded already{again}", highlight=False
        )
    if config.runtime.hardware is None and forecast.refused.asked:
        console.print("runtime.hardware is not named: rules about hardware were not asked", highlight=False)


def plan_facts(plan: SweepPlan) -> dict[str, object]:
    """The same for machines."""
    forecast, survey, rest, overruled = plan.forecast, plan.forecast.refused, plan.rest(), plan.overruled()
    return {
        "study": plan.ledger.config.name,
        "boots": forecast.boots_planned(),
        "trials": forecast.trials_planned(),
        "left": {"boots": rest.boots, "trials": rest.trials},
        "estimated_s": round(plan.left_s(), 1),
        "gpu_hours": None if (spent := plan.gpu_hours()) is None else round(spent.hours, 2),
        "estimate_from": "records" if forecast.costs().measured else "assumptions",
        "gate": None if plan.ledger.config.gate is None else plan.ledger.config.gate.model_dump(),
        "workloads": [workload.name for workload in plan.ledger.config.workloads],
        "refused": {
            "points": survey.refused,
            "asked": survey.asked,
            "all_asked": survey.is_whole,
            "by_rule": dict(survey.by_rule),
            "lines": dict(survey.lines),
        },
        "overruled": {
            "points": overruled.points,
            "asked": overruled.asked,
            "by_rule": dict(overruled.by_rule),
            "lines": dict(overruled.lines),
        },
        "notes": [note.line for note in plan.notes()],
        "settings": [
            {
                "label": one.label,
                "knobs": dict(one.spec.knobs),
                "refused": None if one.refusal is None else one.refusal.line,
                "missing": one.missing,
            }
            for one in plan.ahead
        ],
    }


def _plan_table(plan: SweepPlan, rest: WorkLeft) -> Group:
    """What is left, boot by boot."""
    forecast, config = plan.forecast, plan.ledger.config
    ahead = plan.ahead if rest.search_boots else []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("boot", "phase", "setting"):
        table.add_column(column, justify="right" if column == "boot" else "left", overflow="fold")
    boots = 0
    for one in ahead:
        if one.missing == 0:
            continue
        if one.refusal is None:
            boots += 1
            table.add_row(str(boots), "search", escape(one.label))
        else:
            table.add_row("–", "refused", escape(f"{one.label} ({one.refusal.rule})"))
    unseen = rest.search_boots - boots
    if unseen > 0:
        table.add_row(f"+{unseen}", "search", f"chosen by {config.proposer.kind} from the results so far")
    if rest.confirm_boots:
        sides = "default, what comes first and best" if config.budget.confirm_first else "default and best"
        table.add_row(f"+{rest.confirm_boots}", "confirm", f"{sides} in turns")
    size = f"{show_count(forecast.settings, 'setting')} × {show_count(len(config.workloads), 'workload')}"
    return titled(f"{config.name}: {size}", table)


def _refused_lines(survey: Survey) -> list[str]:
    """How many points the rules refuse, and which rules they are."""
    if not survey.refused:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in survey.by_rule.items())
    of = f"{survey.asked} points" if survey.is_whole else f"{survey.asked} points drawn from a larger space"
    head = f"{survey.refused} of {of} are refused by the rules, without a boot: {rules} (docs/sglang-rules.md)"
    return [head, *(f"  {survey.lines[rule]}" for rule in survey.by_rule)]


def _overruled_lines(found: Overruled) -> list[str]:
    """How many of the others would boot and run something else than they ask for, and why."""
    if not found.points:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in found.by_rule.items())
    head = f"{found.points} of the {found.asked} others would run otherwise than asked, at the price of a boot: {rules}"
    return [head, *(f"  {found.lines[rule]}" for rule in found.by_rule)]

"""What `sweep --dry-run` prints: the boots ahead, what the rules refuse, how long it will take."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsabench.cli.figures import show_duration
from dsabench.cli.outlook import Outlook
from dsabench.search.budget import Purse
from dsabench.search.forecast import Forecast
from dsabench.search.ledger import Ledger
from dsabench.search.plan import Foreseen, foresee
from dsabench.search.refused import Survey


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep that is not begun."""

    ledger: Ledger
    purse: Purse
    forecast: Forecast
    outlook: Outlook = field(default_factory=Outlook)

    def ahead(self) -> list[Foreseen]:
        """The settings of the search that are certain."""
        return foresee(self.ledger, self.purse.round, self.forecast.search_boots(), self.outlook.refuse)

    def gpu_hours(self) -> float | None:
        """GPUs × hours of the boots that are planned; None where no GPU is known of."""
        specs = [one.spec for one in self.ahead() if one.refusal is None]
        workloads = len(self.ledger.config.workloads)
        return self.outlook.gpu_hours(specs, self.forecast.confirm_boots(), self.forecast.costs(), workloads)


def print_plan(console: Console, plan: SweepPlan, *, as_json: bool) -> None:
    """What a sweep would measure, and how long that would take."""
    if as_json:
        print(_plan_json(plan))
        return
    forecast, config, cost = plan.forecast, plan.ledger.config, plan.forecast.costs()
    console.print(_plan_table(plan))
    for line in _refused_lines(forecast.refused):
        console.print(line, highlight=False, markup=False, style="yellow")
    boots, trials = forecast.boots_planned(), forecast.trials_planned()
    basis = "from this study's records" if cost.measured else "assumed: nothing is measured yet"
    per = f"{cost.boot_s:.1f} s a boot, {cost.trial_s:.1f} s a trial, {basis}"
    seconds = show_duration(cost.of(boots, trials))
    console.print(f"{boots} boots, {trials} trials, about {seconds} ({per})", highlight=False)
    hours = plan.gpu_hours()
    if hours is not None:
        console.print(f"about {hours:.1f} GPU-hours", highlight=False)
    if forecast.boots_done():
        console.print(f"{forecast.boots_done()} boots of these are recorded already", highlight=False)
    if config.runtime.hardware is None and forecast.refused.asked:
        console.print("runtime.hardware is not named: rules about hardware were not asked", highlight=False)


def _plan_json(plan: SweepPlan) -> str:
    forecast, cost = plan.forecast, plan.forecast.costs()
    boots, trials = forecast.boots_planned(), forecast.trials_planned()
    survey = forecast.refused
    data = {
        "study": plan.ledger.config.name,
        "boots": boots,
        "trials": trials,
        "estimated_s": round(cost.of(boots, trials), 1),
        "gpu_hours": None if (hours := plan.gpu_hours()) is None else round(hours, 2),
        "estimate_from": "records" if cost.measured else "assumptions",
        "workloads": [workload.name for workload in plan.ledger.config.workloads],
        "refused": {
            "points": survey.refused,
            "asked": survey.asked,
            "all_asked": survey.is_whole,
            "by_rule": dict(survey.by_rule),
        },
        "settings": [
            {
                "label": one.label,
                "knobs": dict(one.spec.knobs),
                "refused": None if one.refusal is None else one.refusal.line,
            }
            for one in plan.ahead()
        ],
    }
    return json.dumps(data)


def _plan_table(plan: SweepPlan) -> Table:
    forecast, config = plan.forecast, plan.ledger.config
    ahead = plan.ahead()
    title = f"{config.name}: {forecast.settings} settings × {len(config.workloads)} workloads"
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column in ("boot", "phase", "setting"):
        table.add_column(column, justify="right" if column == "boot" else "left", overflow="fold")
    boots = 0
    for one in ahead:
        if one.refusal is None:
            boots += 1
            table.add_row(str(boots), "search", escape(one.label))
        else:
            table.add_row("–", "refused", escape(f"{one.label} ({one.refusal.rule})"))
    unseen = forecast.search_boots() - boots
    if unseen > 0:
        table.add_row(f"+{unseen}", "search", f"chosen by {config.proposer.kind} from the results so far")
    if forecast.confirm_boots():
        table.add_row(f"+{forecast.confirm_boots()}", "confirm", "default and best in turns")
    return table


def _refused_lines(survey: Survey) -> list[str]:
    """How many points the rules refuse, and which rules they are."""
    if not survey.refused:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in survey.by_rule.items())
    of = f"{survey.asked} points" if survey.is_whole else f"{survey.asked} points drawn from a larger space"
    return [f"{survey.refused} of {of} are refused by the rules, without a boot: {rules} (docs/sglang-rules.md)"]

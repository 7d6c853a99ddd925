"""The plan of a sweep: its boots, what of them would be refused, and what they cost."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsabench.cli.figures import show_duration
from dsabench.cli.outlook import Outlook
from dsabench.model.runtime import RuntimeSpec
from dsabench.search.budget import Purse
from dsabench.search.forecast import Forecast
from dsabench.search.ledger import Ledger
from dsabench.search.plan import foresee


@dataclass(frozen=True, slots=True)
class Planned:
    """The budget, the forecast under it, and what is known of settings beforehand."""

    purse: Purse
    forecast: Forecast
    outlook: Outlook


def print_plan(console: Console, ledger: Ledger, planned: Planned, *, as_json: bool) -> None:
    """What a sweep would measure, and how long that would take."""
    forecast = planned.forecast
    ahead = foresee(ledger, planned.purse.round, forecast.search_boots())
    refused = {spec.id: planned.outlook.refusal(spec) for _, spec in ahead}
    lost = sum(reason is not None for reason in refused.values())
    config, cost = ledger.config, forecast.costs()
    boots, trials = forecast.boots_planned(), forecast.trials_planned()
    seconds = cost.of(boots - lost, trials - lost * len(config.workloads))
    specs = [spec for _, spec in ahead]
    hours = planned.outlook.gpu_hours(specs, forecast.confirm_boots(), cost, len(config.workloads))
    if as_json:
        plan = {
            "study": config.name,
            "boots": boots,
            "trials": trials,
            "estimated_s": round(seconds, 1),
            "gpu_hours": None if hours is None else round(hours, 2),
            "estimate_from": "records" if cost.measured else "assumptions",
            "workloads": [workload.name for workload in config.workloads],
            "settings": [
                {"label": label, "knobs": dict(spec.knobs), "refused": refused[spec.id]} for label, spec in ahead
            ],
        }
        print(json.dumps(plan))
        return
    console.print(_table(ledger, forecast, ahead, refused))
    basis = "from this study's records" if cost.measured else "assumed: nothing is measured yet"
    per = f"{cost.boot_s:.1f} s a boot, {cost.trial_s:.1f} s a trial, {basis}"
    console.print(f"{boots} boots, {trials} trials, about {show_duration(seconds)} ({per})", highlight=False)
    if hours is not None:
        console.print(f"about {hours:.1f} GPU-hours", highlight=False)
    if lost:
        console.print(f"{lost} of these settings are refused before they boot, and recorded so", highlight=False)
    if forecast.boots_done():
        console.print(f"{forecast.boots_done()} boots of these are recorded already", highlight=False)


def _table(
    ledger: Ledger, forecast: Forecast, ahead: list[tuple[str, RuntimeSpec]], refused: dict[str, str | None]
) -> Table:
    config = ledger.config
    title = f"{config.name}: {forecast.settings} settings × {len(config.workloads)} workloads"
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column in ("boot", "phase", "setting"):
        table.add_column(column, justify="right" if column == "boot" else "left", overflow="fold")
    for number, (label, spec) in enumerate(ahead, start=1):
        reason = refused[spec.id]
        note = "" if reason is None else f"\nrefused: {reason}"
        table.add_row(str(number), "search", escape(label + note), style=None if reason is None else "red")
    unseen = forecast.search_boots() - len(ahead)
    if unseen > 0:
        table.add_row(f"+{unseen}", "search", f"chosen by {config.proposer.kind} from the results so far")
    if forecast.confirm_boots():
        table.add_row(f"+{forecast.confirm_boots()}", "confirm", "default and best in turns")
    return table

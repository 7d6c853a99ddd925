"""`dsabench compare --slice`: what slices predict of deployments against the deployments themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsabench.cli.figures import show_figure, show_percent
from dsabench.cli.titled_table import titled
from dsabench.reporting.comparison import Side
from dsabench.reporting.slice_findings import conclusions, effects_of, orders_of
from dsabench.reporting.slice_prediction import FORMULA, PREDICTED_METRICS, Prediction, Predictions, predict


def compare_slices(
    measured: Side,
    slices: Side,
    metrics: Sequence[str],
    *,
    across: bool,
    as_json: bool,
    stood_still: Sequence[str] = (),
) -> None:
    """Print predicted, measured and error of each deployment and load, and what follows.

    `stood_still` names the measurements whose rates a standstill of the server spoils.
    """
    chosen = tuple(metrics) or PREDICTED_METRICS
    found = predict(measured, slices, chosen, across=across)
    if as_json:
        print(json.dumps(_as_json(found, chosen[0]) | {"stood_still": list(stood_still)}))
        return
    console = Console()
    _print(console, found, chosen[0])
    for line in stood_still:
        console.print(line, markup=False, highlight=False, style="yellow")


def _print(console: Console, found: Predictions, metric: str) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("deployment and load", overflow="fold")
    for column in ("predicted", "measured", "error", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, workload in dict.fromkeys((one.deployment.name, one.workload) for one in found.held):
        held = [one for one in found.held if (one.deployment.name, one.workload) == (name, workload)]
        boots = "{} and {} boots".format(*held[0].boots)
        table.add_row(escape(f"{name}: {workload}"), "", "", "", boots, style="bold")
        for one in held:
            table.add_row(*_cells(one))
    console.print(titled("predicted by one GPU's slice, against the deployment", table))
    for line in (
        "predicted: rates are groups of the attention × the rank's, times the rank's own",
        "error: predicted ÷ measured − 1; boots: of the deployment and of the slice",
    ):
        console.print(line, highlight=False, soft_wrap=True)
    for order in orders_of(found.held, metric):
        console.print(f"\n{order.workload}, {order.metric}, best first", style="bold", markup=False)
        for side, line in zip(("measured ", "predicted"), order.shown, strict=True):
            console.print(f"  {side}  {line}", markup=False, highlight=False)
    for effect in effects_of(found.held, metric):
        console.print(
            f"{effect.workload}: {effect.setting} against {effect.against}: measured {show_percent(effect.measured)}, "
            f"predicted {show_percent(effect.predicted)}",
            markup=False,
            highlight=False,
        )
    console.print("\nwhat follows", style="bold")
    for line in conclusions(found.held, metric):
        console.print(f"- {line}", markup=False, highlight=False)
    for missing in found.unpredicted:
        console.print(f"no slice measured for {missing}", markup=False, highlight=False, style="yellow")


def _cells(one: Prediction) -> tuple[str, ...]:
    interval = "–" if one.interval is None else " … ".join(show_percent(bound) for bound in one.interval)
    values = show_figure(one.predicted), show_figure(one.measured)
    return f"  {escape(one.metric)}", *values, show_percent(one.error), interval


def _as_json(found: Predictions, metric: str) -> dict[str, object]:
    return {
        "formula": FORMULA,
        "predictions": [_prediction_json(one) for one in found.held],
        "orders": [asdict(order) for order in orders_of(found.held, metric)],
        "effects": [{**asdict(effect), "agrees": effect.agrees} for effect in effects_of(found.held, metric)],
        "follows": list(conclusions(found.held, metric)),
        "unpredicted": list(found.unpredicted),
    }


def _prediction_json(one: Prediction) -> dict[str, object]:
    shape = one.deployment.shape
    low, high = one.interval or (None, None)
    return {
        "deployment": one.deployment.name,
        "gpus": shape.gpus,
        "attn_tp": shape.attn_tp,
        "dp": shape.dp,
        "ep": shape.ep,
        "mtp": shape.mtp,
        "slice": one.slice_model,
        "workload": one.workload,
        "metric": one.metric,
        "factor": one.factor,
        "predicted": one.predicted,
        "measured": one.measured,
        "error": one.error,
        "ci_low": low,
        "ci_high": high,
        "boots": one.boots[0],
        "slice_boots": one.boots[1],
    }

"""Tuning that measures at the server: a sweep, then its table."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dsabench.cli.run_sweep import Request, measure
from dsabench.cli.show_sweep import print_gate
from dsabench.config.load import load_sweep
from dsabench.config.specs import SweepConfig
from dsabench.emit.tables import write_table
from dsabench.search.loop import Result
from dsabench.tuners.hisparse import free_host_bytes, plan_hisparse, rank_of, table_of
from dsabench.tuners.hisparse_memory import GIB
from dsabench.tuners.mha_threshold import KNOB, Proposal, propose, require_threshold_study
from dsabench.tuners.of_sweep import CurvePoint, curve_of


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """The command line of a tune that sweeps."""

    config: str
    results: Path | None
    again: bool
    out: Path | None
    as_json: bool
    lanes: int = 1

    def request(self, verb: str) -> Request:
        """The sweep's own command line."""
        return Request(
            config=self.config,
            results=self.results,
            max_trials=None,
            max_boots=None,
            time_s=None,
            dry_run=False,
            again=self.again,
            as_json=self.as_json,
            verb=("tune", verb),
            lanes=self.lanes,
        )

    def command(self, verb: str) -> str:
        """What measures it again."""
        return shlex.join(["dsabench", "tune", verb, self.config])


def tune_threshold(order: SweepOrder) -> int:
    """Measure, propose, write; returns the exit code."""
    require_threshold_study(load_sweep(order.config))
    config, _, result = measure(order.request("mha-threshold"))
    assert result is not None, "nothing was only planned"
    proposal = propose(config, result, order.command("mha-threshold"))
    curve = curve_of(result.records, KNOB, config.objective.metric)
    path = None
    if proposal.table is not None:
        path = write_table(order.out or Path("results") / config.name / "tables", proposal.table)
    if order.as_json:
        points = [{"workload": p.workload, KNOB: p.value, "median": p.median, "boots": p.boots} for p in curve]
        said = {"standing": proposal.standing, "reason": proposal.reason, "table": path and str(path), "curve": points}
        gates = [one.accuracy for one in result.passed_over] + [result.gate]
        said["gates"] = [gate.model_dump() for gate in gates if gate is not None]
        said["verdicts"] = [verdict.model_dump() for verdict in result.verdicts]
        print(json.dumps(said, indent=1))
    else:
        _show(config, result, curve, proposal, path)
    return 1 if proposal.standing == "refused by the gate" else 0


@dataclass(frozen=True, slots=True)
class HisparseOrder:
    """The command line of `tune hisparse`."""

    sweep: SweepOrder
    gpus: int
    host_memory_gib: float | None
    dry_run: bool


def tune_hisparse(order: HisparseOrder) -> int:
    """Plan, say the arithmetic, measure, write; returns the exit code."""
    config = load_sweep(order.sweep.config)
    given = order.host_memory_gib
    free = free_host_bytes(Path("/proc/meminfo").read_text()) // order.sweep.lanes
    host = free if given is None else int(given * GIB)
    plan = plan_hisparse(config, rank_of(config, gpus=order.gpus), host)
    for line in () if order.sweep.as_json else plan.arithmetic:
        print(line)
    table, standing, path = None, "nothing was measured", None
    if not order.dry_run:
        _, _, result = measure(order.sweep.request("hisparse"), plan.config)
        assert result is not None, "nothing was only planned"
        table, standing = table_of(plan.config, result, order.sweep.command("hisparse"))
    if table is not None:
        path = write_table(order.sweep.out or Path("results") / config.name / "tables", table)
    if order.sweep.as_json:
        said = {"standing": standing, "table": path and str(path), "arithmetic": plan.arithmetic}
        print(json.dumps(said, indent=1))
    else:
        print(standing if path is None else f"{standing}\n{path}")
    return 0


def _show(config: SweepConfig, result: Result, curve: list[CurvePoint], proposal: Proposal, path: Path | None) -> None:
    console = Console()
    table = Table("workload", "threshold (tokens)", config.objective.metric, "boots", box=None)
    for point in curve:
        table.add_row(point.workload, f"{point.value:,}", f"{point.median:,.1f}", str(point.boots))
    console.print(table)
    for verdict in result.verdicts:
        if verdict.effect is not None and verdict.ci_low is not None and verdict.ci_high is not None:
            interval = f"{verdict.effect:+.1%} ({verdict.ci_low:+.1%} … {verdict.ci_high:+.1%})"
            console.print(f"{verdict.workload} {verdict.metric}: {interval}: {verdict.verdict}")
    print_gate(console, result)
    console.print(f"{proposal.standing}: {proposal.reason}", soft_wrap=True, markup=False)
    if path is not None:
        console.print(str(path), soft_wrap=True, highlight=False, markup=False)

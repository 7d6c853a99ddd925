"""Tuning that measures at the server: a sweep, then its table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dsabench.cli.run_study import measure
from dsabench.cli.show_study import exit_code, say_next, show_plan, show_result, study_facts
from dsabench.cli.study_request import Request
from dsabench.config.load import load_study
from dsabench.emit.tables import write_table
from dsabench.model.study_result import StudyResult
from dsabench.model.tuned_table import TunedTable
from dsabench.study.study import Study
from dsabench.tuners.hisparse import free_host_bytes, plan_hisparse, rank_of, table_of
from dsabench.tuners.hisparse_memory import GIB
from dsabench.tuners.mha_threshold import KNOB, propose, require_threshold_study
from dsabench.tuners.of_sweep import CurvePoint, curve_of

_GPUS = 8


def tune_threshold(request: Request) -> int:
    """Measure, propose, write; returns the exit code."""
    config = load_study(request.config)
    require_threshold_study(config)
    study = request.study(config)
    if request.dry_run:
        show_plan(request, study)
        return 0
    result = measure(request, study)
    proposal = propose(study.config, result, request.study_command())
    curve = curve_of(result.records, KNOB, study.config.objective.metric)
    path = _write(request, study, proposal.table)
    if request.as_json:
        points = [{"workload": p.workload, KNOB: p.value, "median": p.median, "boots": p.boots} for p in curve]
        gates = [one.accuracy for one in result.passed_over] + [result.gate]
        said = {"standing": proposal.standing, "reason": proposal.reason, "table": path and str(path), "curve": points}
        said["gates"] = [gate.model_dump() for gate in gates if gate is not None]
        _print_json(request, study, result, said)
    else:
        show_result(request, study, result)
        _print_curve(study, curve)
        _print_standing(request, result, f"{proposal.standing}: {proposal.reason}", path)
    if proposal.standing == "refused by the gate":
        return 1
    return 3 if exit_code(result) == 3 else 0


@dataclass(frozen=True, slots=True)
class HisparseOrder:
    """The command line of `tune hisparse`."""

    request: Request
    gpus: int
    host_memory_gib: float | None
    same_pool: bool

    def sweep(self) -> Request:
        """Its sweep; what decides the pool and the settings is said in the command that measures it again."""
        given = (
            ("--gpus", None if self.gpus == _GPUS else self.gpus),
            ("--host-memory-gib", self.host_memory_gib),
            ("--same-pool", self.same_pool or None),
        )
        return replace(self.request, own=given)

    def host_bytes(self) -> float:
        """Host memory of a lane; what was measured fitted into its machine, whatever this one has."""
        if self.host_memory_gib is not None:
            return self.host_memory_gib * GIB
        if self.request.conclude:
            return math.inf
        return free_host_bytes(Path("/proc/meminfo").read_text()) // self.request.lanes


def tune_hisparse(order: HisparseOrder) -> int:
    """Plan, say the arithmetic, measure, write; returns the exit code."""
    request, config = order.sweep(), load_study(order.request.config)
    plan = plan_hisparse(config, rank_of(config, gpus=order.gpus), order.host_bytes(), same_pool=order.same_pool)
    for line in () if request.as_json or request.conclude else plan.arithmetic:
        print(line)
    study = request.study(plan.config)
    if request.dry_run:
        show_plan(request, study, {"standing": "nothing was measured", "table": None, "arithmetic": plan.arithmetic})
        return 0
    result = measure(request, study)
    table, standing = table_of(study.config, result, request.study_command())
    path = _write(request, study, table)
    if request.as_json:
        said = {"standing": standing, "table": path and str(path), "arithmetic": plan.arithmetic}
        _print_json(request, study, result, said)
    else:
        show_result(request, study, result)
        _print_standing(request, result, standing, path)
    return 3 if exit_code(result) == 3 else 0


def _write(request: Request, study: Study, table: TunedTable | None) -> Path | None:
    return None if table is None else write_table(request.tables(study), table)


def _print_json(request: Request, study: Study, result: StudyResult, said: Mapping[str, object]) -> None:
    print(json.dumps({**study_facts(request, study, result), **said}, indent=1))


def _print_curve(study: Study, curve: Sequence[CurvePoint]) -> None:
    table = Table("workload", "threshold (tokens)", study.config.objective.metric, "boots", box=None)
    for point in curve:
        table.add_row(point.workload, f"{point.value:,}", f"{point.median:,.1f}", str(point.boots))
    Console().print(table)


def _print_standing(request: Request, result: StudyResult, standing: str, path: Path | None) -> None:
    print(standing)
    if path is not None:
        print(f"table: {path}")
    say_next(request, result)

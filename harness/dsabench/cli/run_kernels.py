"""From a kernels command to its worker, its lines and its journal."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from dsabench.cli.kernel_progress import KernelProgress, follow, say, say_point
from dsabench.errors import InputError
from dsabench.kernelbench.conductor import WorkerLine, run_bench
from dsabench.kernelbench.records import FILE_NAME, latest, unreadable
from dsabench.kernelbench.request import Action, KernelBenchRequest, KernelPoint, TimingLimits
from dsabench.kernelbench.table import read_points
from dsabench.reporting.numbers import show_count
from dsabench.results.journal import claim_folder
from dsabench.signals import run_loop, stop_at_any_signal
from dsabench.tuners.kernel_bench import KernelBench


def ask(
    action: Action,
    *,
    operators: list[str] | None = None,
    candidates: str = "",
    shapes: str = "",
    dtypes: str = "",
    budget: str = "",
    patience: str = "5m",
    spread: float = 0.02,
    sustain: float = 0.0,
    **more: Any,
) -> KernelBenchRequest:
    """The request that the options mean.

    Raises:
        InputError: a time or dtype that is none.

    """
    wanted = _words(dtypes)
    for dtype in wanted:
        if dtype not in ("bf16", "fp8"):
            raise InputError(f"--dtypes {dtype}: one of bf16, fp8")
    return KernelBenchRequest(
        action,
        operators=tuple(operators or ()),
        candidates=_words(candidates),
        shapes=_words(shapes),
        dtypes=wanted,
        budget_s=_seconds("--budget", budget) if budget else None,
        patience_s=_patience_s(patience),
        limits=TimingLimits(half_width=spread, sustain_s=sustain),
        **more,
    )


def list_candidates(request: KernelBenchRequest, python: str | None, *, as_json: bool) -> None:
    """One line a candidate; a terminal that is narrower gets it folded."""
    answer: Answer = {}
    run_loop(follow(run_bench(request, python), KernelProgress(request, python), lambda said: note(answer, said)))
    if as_json:
        print(json.dumps(answer, indent=1))
        return
    for operator, candidates in answer.items():
        print(operator)
        for name, entry in candidates.items():
            print(_folded(f"  {name:27} {entry.get('reason') or 'runs here: ' + entry['does']}", 30))


def _folded(line: str, indent: int) -> str:
    if not sys.stdout.isatty():
        return line
    return textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=" " * indent)


def check_candidates(request: KernelBenchRequest, python: str | None, *, as_json: bool) -> int:
    """0 when nothing that ran was wrong, else 1."""
    stop_at_any_signal()
    answer: Answer = {}
    progress = KernelProgress(request, python)

    def hear(said: WorkerLine) -> None:
        note(answer, said)
        if said["is"] == "check":
            say_point(said, progress.count(said))

    run_loop(follow(run_bench(request, python), progress, hear))
    return finish(answer, as_json=as_json)


def bench_candidates(
    request: KernelBenchRequest, python: str | None, results: Path, *, again: bool, as_json: bool
) -> int:
    """0 when nothing that ran was wrong, else 1.

    Raises:
        BusyError: another process measures into the folder.

    """
    stop_at_any_signal()
    with claim_folder(results):
        bench = _Bench(request, results, KernelProgress(request, python), again=again)
        try:
            run_loop(follow(run_bench(request, python, bench.known), bench.progress, bench.hear))
        except KeyboardInterrupt:
            bench.tabulate()
            say(f"interrupted: {show_count(bench.measured, 'point')} measured and recorded; the same command goes on")
            raise
        bench.tabulate()
    return finish(bench.complete(), as_json=as_json, tail=f"; {bench.summary}")


def report_kernels(results: Path, output: Path) -> None:
    """Write the page and say where it is, and how near each candidate is to the fastest and to the floor."""
    from dsabench.reporting.kernel_page import write_page
    from dsabench.reporting.kernel_shares import shares

    _say_unreadable(results)
    measurements = list(latest(read_points(results)).values())
    print(write_page(measurements, output))
    for share in shares(measurements):
        print(share.line)


def _say_unreadable(results: Path) -> None:
    """Of a journal that was damaged: what is not in it any more is no silent loss."""
    if lost := unreadable(results):
        say(
            f"{results / FILE_NAME}: {show_count(lost, 'line')} left out, not to be read as points; bench measures them anew"
        )


class _Bench:
    """A bench that says and records what it hears."""

    def __init__(self, request: KernelBenchRequest, results: Path, progress: KernelProgress, *, again: bool) -> None:
        self.progress = progress
        self._bench = KernelBench(request, results, again=again)
        self._results = results
        self._answer: Answer = {}

    @property
    def measured(self) -> int:
        """Points of this run."""
        return self._bench.measured

    async def known(self, device: WorkerLine) -> tuple[KernelPoint, ...]:
        """The points that are recorded already of where the worker runs."""
        _say_unreadable(self._results)
        return await self._bench.known(device)

    def hear(self, said: WorkerLine) -> None:
        """Say and record points."""
        note(self._answer, said)
        if said["is"] == "point":
            say_point(said, self.progress.count(said))
        self._bench.hear(said)

    def tabulate(self) -> None:
        """Make the table of all that is recorded, where a point was."""
        if (table := self._bench.tabulate()) is not None:
            print(table, file=sys.stderr)

    def complete(self) -> Answer:
        """What was heard, and of the same candidates what was recorded before."""
        for measurement in self._bench.settled.values():
            if measurement.candidate in self._answer.get(measurement.operator, {}):
                note(self._answer, {"is": "point", **measurement.model_dump(mode="json", exclude_none=True)})
        return self._answer

    @property
    def summary(self) -> str:
        """What was measured, and what is left."""
        left = f", {self._bench.left} left: the same command goes on with them" if self._bench.left else ""
        return f"{show_count(self.measured, 'point')} measured{left}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _seconds(option: str, text: str) -> float:
    """Of `90s`, `5m`, `1h`.

    Raises:
        InputError: it is none of these.

    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text, re.ASCII)
    if match is None:
        raise InputError(f"{option} {text}: a number with s, m or h, as in 5m")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _patience_s(text: str) -> float:
    seconds = _seconds("--patience", text)
    if seconds < 1:
        raise InputError(f"--patience {text}: 1s or more; starting an interpreter and importing torch counts")
    return seconds


Answer = dict[str, dict[str, dict[str, Any]]]
"""Operator → candidate → status and what belongs to it: the object that --json prints."""
_ERRORS = ("rel_err", "rounded_err")
_TIMES = ("shape_id", "dtype", "status", "reason", "median_us", "mad_us", "low_us", "high_us", "n", "floor_us")
_OURS = ("does", "dtypes", "untaken", "seen")
"""What an entry holds for this program alone."""


def note(answer: Answer, said: WorkerLine) -> None:
    """Fold one line of a worker into the answer."""
    if said["is"] not in ("candidate", "check", "point"):
        return
    entries = answer.setdefault(str(said["operator"]), {})
    entry = entries.setdefault(str(said["candidate"]), {})
    if said["is"] == "candidate":
        runs = said["reason"] is None
        entry.update({"status": "ok"} if runs else {"status": "unavailable", "reason": said["reason"]})
        entry.update(does=said["does"], dtypes=said["dtypes"])
        return
    for error in _ERRORS:
        if said.get(error) is not None:
            entry[error] = max(float(str(said[error])), entry.get(error, 0.0))
    if said["status"] == "unavailable":
        entry.setdefault("untaken", said["reason"])
    else:
        entry["seen"] = True
    if said["status"] in ("wrong", "failed", "crashed"):
        entry.update(status="wrong", reason=f"{said['shape_id']} {said['dtype']}: {said['reason']}")
    if said["is"] == "point":
        times = {name: said[name] for name in _TIMES if said.get(name) is not None}
        entry.setdefault("times", []).append(times)


def settle(answer: Answer) -> None:
    """A candidate of which no point was seen did not run, and `ok` would say that it did."""
    for entries in answer.values():
        for entry in entries.values():
            if entry["status"] == "ok" and not entry.get("seen"):
                entry.update(status="unavailable", reason=entry.get("untaken", "none of its points was begun"))


def finish(answer: Answer, *, as_json: bool, tail: str = "") -> int:
    """Print what it comes to; 0 when nothing that ran was wrong, else 1."""
    settle(answer)
    every = [entry for entries in answer.values() for entry in entries.values()]
    wrong = sum(entry["status"] == "wrong" for entry in every)
    if as_json:
        plain = {o: {c: _without(e) for c, e in entries.items()} for o, entries in answer.items()}
        print(json.dumps(plain, indent=1))
    else:
        ran = sum(entry["status"] != "unavailable" for entry in every)
        not_here = f", {len(every) - ran} did not" if ran < len(every) else ""
        print(f"{show_count(ran, 'candidate')} ran{not_here}, {wrong} wrong{tail}")
    return 1 if wrong else 0


def _without(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in _OURS}

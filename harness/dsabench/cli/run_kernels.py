"""From a kernels command to its worker, its lines and its journal."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dsabench
from dsabench.errors import InputError
from dsabench.microbench.conduct import Said, conduct
from dsabench.microbench.measured import Measurement, append, latest, read
from dsabench.microbench.request import Action, Limits, Request
from dsabench.microbench.table import read_points, write_table
from dsabench.model.runtime import Environment, RuntimeIdentity
from dsabench.probes.environment import collect_environment
from dsabench.runtimes.identify import hash_of

Answer = dict[str, dict[str, dict[str, Any]]]
"""Operator → candidate → status and what belongs to it: the object that --json prints."""


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
    **more: Any,
) -> Request:
    """The request that the options mean.

    Raises:
        InputError: a time or dtype that is none.

    """
    wanted = _words(dtypes)
    for dtype in wanted:
        if dtype not in ("bf16", "fp8"):
            raise InputError(f"--dtypes {dtype}: one of bf16, fp8")
    return Request(
        action,
        operators=tuple(operators or ()),
        candidates=_words(candidates),
        shapes=_words(shapes),
        dtypes=wanted,
        budget_s=_seconds("--budget", budget) if budget else None,
        patience_s=_seconds("--patience", patience),
        limits=Limits(half_width=spread),
        **more,
    )


def list_candidates(request: Request, python: str | None, *, as_json: bool) -> None:
    """One line a candidate."""
    answer: Answer = {}
    asyncio.run(collect(request, python, lambda said: _note(answer, said)))
    if as_json:
        print(json.dumps(answer, indent=1))
        return
    for operator, candidates in answer.items():
        print(operator)
        for name, entry in candidates.items():
            print(f"  {name:27} {entry.get('reason') or 'runs here: ' + entry['does']}")


def check_candidates(request: Request, python: str | None, *, as_json: bool) -> int:
    """0 when nothing that ran was wrong, else 1."""
    answer: Answer = {}

    def hear(said: Said) -> None:
        _note(answer, said)
        if said["is"] == "check":
            say_progress(said)

    asyncio.run(collect(request, python, hear))
    return _finish(answer, as_json=as_json)


def bench_candidates(request: Request, python: str | None, results: Path, *, again: bool, as_json: bool) -> int:
    """0 when nothing that ran was wrong, else 1."""
    answer: Answer = {}
    asyncio.run(_bench(request, python, results, answer, again=again))
    return _finish(answer, as_json=as_json)


def report_kernels(results: Path, output: Path) -> None:
    """Write the page and say where it is, and how near each candidate is to the fastest and to the floor."""
    from dsabench.reporting.kernel_page import write_page
    from dsabench.reporting.kernel_shares import shares

    measurements = list(latest(read_points(results)).values())
    print(write_page(measurements, output))
    for share in shares(measurements):
        print(share.line)


async def _bench(request: Request, python: str | None, results: Path, answer: Answer, *, again: bool) -> None:
    environment = await environment_of(request, python)
    known = {} if again else latest(read(results), environment.fingerprint)
    settled = {point: m for point, m in known.items() if m.status in ("ok", "wrong", "unavailable")}
    request = replace(request, skip=tuple(settled))

    def hear(said: Said) -> None:
        _note(answer, said)
        if said["is"] == "point":
            say_progress(said)
            append(results, _measurement(said, request, environment))
        elif said["is"] == "ceilings":
            print(f"ceilings: {said['tb_s']:.3f} TB/s, {said['tflop_s']:.1f} TFLOP/s", file=sys.stderr)
        elif said["is"] == "left" and said["points"]:
            print(f"{said['points']} points left: the same command goes on with them", file=sys.stderr)

    await collect(request, python, hear)
    for measurement in settled.values():
        if measurement.operator in answer and measurement.candidate in answer[measurement.operator]:
            _note(answer, {"is": "point", **measurement.model_dump(mode="json", exclude_none=True)})
    everything = read(results)
    if everything:
        print(write_table(results, everything), file=sys.stderr)


def _measurement(said: Said, request: Request, environment: Environment) -> Measurement:
    where: dict[str, Any] = {name: value for name, value in said.items() if name != "is"}
    now = datetime.now(UTC)
    return Measurement(**where, seed=request.seed, threads=request.threads, started_at=now, environment=environment)


async def environment_of(request: Request, python: str | None) -> Environment:
    """Hardware, torch and kernel packages of the worker, and the code of the adapters."""
    device: Said = {}

    def hear(said: Said) -> None:
        if said["is"] == "device":
            device.update(said)

    await collect(replace(request, action="device"), python, hear)
    package = Path(dsabench.__file__).parent
    kernels = package.parent.parent / "kernels" / "dsakernels"
    code = [folder for folder in (kernels, package.parent / "dsakernels", package / "microbench") if folder.is_dir()]
    return await collect_environment(
        RuntimeIdentity(
            kind="reference",
            version=dsabench.__version__,
            wheel_hash=hash_of(code),
            torch=str(device["torch"]),
            python=str(device["python"]),
            packages={str(k): str(v) for k, v in dict(device["packages"]).items()},  # type: ignore[call-overload]
        )
    )


async def collect(request: Request, python: str | None, hear: Callable[[Said], None]) -> None:
    """Hear what workers say."""
    async with aclosing(conduct(request, python)) as lines:
        async for said in lines:
            hear(said)


def _note(answer: Answer, said: Said) -> None:
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
    for error in ("rel_err", "rounded_err"):
        if said.get(error) is not None:
            entry[error] = max(float(str(said[error])), entry.get(error, 0.0))
    if said["status"] in ("wrong", "failed", "crashed"):
        entry.update(status="wrong", reason=f"{said['shape_id']} {said['dtype']}: {said['reason']}")
    if said["is"] == "point":
        names = ("shape_id", "dtype", "status", "reason", "median_us", "mad_us", "low_us", "high_us", "n", "floor_us")
        entry.setdefault("times", []).append({name: said[name] for name in names if said.get(name) is not None})


def _finish(answer: Answer, *, as_json: bool) -> int:
    wrong = [(o, c) for o, entries in answer.items() for c, entry in entries.items() if entry["status"] == "wrong"]
    if as_json:
        plain = {o: {c: _without_description(e) for c, e in entries.items()} for o, entries in answer.items()}
        print(json.dumps(plain, indent=1))
    else:
        ran = sum(entry["status"] != "unavailable" for entries in answer.values() for entry in entries.values())
        print(f"{ran} candidates ran, {len(wrong)} wrong")
    return 1 if wrong else 0


def _without_description(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in ("does", "dtypes")}


def say_progress(said: Said) -> None:
    """One plain line a point, on standard error."""
    what = f"{said['operator']} {said['candidate']} {said['shape_id']} {said['dtype']}"
    figure = f"{said['median_us']:.1f} µs ± {said['mad_us']:.1f}, n {said['n']}" if "median_us" in said else ""
    errors = [f"{name} {said[name]:.2e}" for name in ("rel_err", "rounded_err") if said.get(name) is not None]
    words = [str(said["status"]), *errors, figure, str(said.get("reason", ""))]
    print(f"{what}: {' '.join(filter(None, words))}".translate(_PRINTABLE), file=sys.stderr)


_PRINTABLE = dict.fromkeys(range(32), "�")


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _seconds(option: str, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
    if match is None:
        raise InputError(f"{option} {text}: a number with s, m or h, as in 5m")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]

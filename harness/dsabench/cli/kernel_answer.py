"""What the lines of a kernels command come to: a status for every candidate, the object that --json prints, the exit code."""

from __future__ import annotations

import json
from typing import Any

from dsabench.microbench.worker_process import Said

Answer = dict[str, dict[str, dict[str, Any]]]
"""Operator → candidate → status and what belongs to it: the object that --json prints."""
_ERRORS = ("rel_err", "rounded_err")
_TIMES = ("shape_id", "dtype", "status", "reason", "median_us", "mad_us", "low_us", "high_us", "n", "floor_us")
_OURS = ("does", "dtypes", "untaken", "seen")
"""What an entry holds for this program alone."""


def note(answer: Answer, said: Said) -> None:
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
        print(f"{counted(ran, 'candidate')} ran{not_here}, {wrong} wrong{tail}")
    return 1 if wrong else 0


def counted(number: int, what: str) -> str:
    """`1 point`, `2 points`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _without(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in _OURS}

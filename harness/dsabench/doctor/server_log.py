"""What the log of a server tells of its scheduler: a line for every prefill step and for every 40th decode step.

    [2026-11-22 16:34:19 DP1 TP1] Decode batch, #running-req: 12, #token: 9216, token usage: 0.31, accept len: 2.41, cuda graph: True, …

The throughput of a decode line is not used: the first one after a prefill counts the prefill's time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from time import time

from dsabench.doctor.server_window import RankState, ServerLook

_LINE = re.compile(r"\[(?P<where>[^]]*)\] (?:(?P<step>Prefill|Decode) batch, |.*Retract requests)")
_RANK = re.compile(r"\bDP(\d+)\b")
_FIELD = re.compile(r"(?:^|, )#?([a-z][a-z _-]*): ([\d.]+|True|False)\b")
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")


class ServerLog:
    """A log that grows. Lines that were there before are not read."""

    def __init__(self, file: Path, dp_ranks: int = 1) -> None:
        self._file = file
        self._read_bytes = file.stat().st_size if file.exists() else 0
        names = [""] if dp_ranks == 1 else list(map(str, range(dp_ranks)))
        self._ranks = dict.fromkeys(names, RankState(0.0, 0.0))
        self._accepted: dict[str, float] = {}
        self._has_steps = False
        self._looks: list[tuple[float, ServerLook]] = []

    def look(self) -> None:
        """Read the new lines. There is nothing to see before the first step."""
        with suppress(OSError), self._file.open("rb") as stream:
            stream.seek(self._read_bytes)
            whole, newline, _ = stream.read().rpartition(b"\n")
            self._read_bytes += len(whole) + len(newline)
            for line in whole.decode(errors="replace").splitlines():
                self._take(line)
        if self._has_steps:
            accepted = self._accepted.values()
            mean = sum(accepted) / len(accepted) if accepted else None
            self._looks.append((time(), ServerLook(dict(self._ranks), mean)))

    def between(self, begun: float, ended: float) -> tuple[ServerLook, ...]:
        """The looks from one moment to another, in seconds of the wall clock."""
        return tuple(look for at, look in self._looks if begun <= at <= ended)

    def _take(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        named = _RANK.search(found["where"])
        rank = named[1] if named else ""
        if (before := self._ranks.get(rank)) is None:
            return
        if found["step"] is None:
            told = _RETRACTED.search(line)
            self._ranks[rank] = before._replace(retracted=before.retracted + (float(told[1]) if told else 1.0))
            return
        values = dict(_FIELD.findall(line[found.end() :]))
        if "running-req" not in values:
            return
        running = float(values["running-req"])
        if found["step"] == "Prefill":
            running += float(values.get("new-seq", 0))  # those of the step itself are not among them
        uses = [float(value) for name, value in values.items() if name.endswith("token usage")]
        graph = values.get("cuda graph") if found["step"] == "Decode" else None
        self._ranks[rank] = RankState(
            running,
            float(values.get("queue-req", before.queued)),
            max(uses, default=before.kv_use),
            before.retracted,
            before.in_graph if graph is None else graph == "True",
        )
        self._has_steps = True
        if "accept len" in values:
            self._accepted[rank] = float(values["accept len"])

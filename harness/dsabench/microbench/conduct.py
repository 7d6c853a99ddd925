"""Ask workers until every point is answered, and start another where a kernel took one down."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType

from dsabench.errors import InputError, TrialFault
from dsabench.microbench.request import Point, Request
from dsabench.microbench.worker_process import DONE, Done, Known, Said, ask_worker, nothing_known, point_of

_CRASHES = 20
_FIRST = ("device", "candidate", "ceilings", "asked", "begin")


async def conduct(
    request: Request,
    python: str | None,
    known: Known = nothing_known,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[Said, None]:
    """Yield what workers say. A point whose worker died or fell silent comes with status `crashed`. `variables` are added to the
    environment of the workers.

    Raises:
        InputError: there is no such interpreter, or the request names what there is not.
        TrialFault: a worker could not start, or died outside a point.

    """
    asked, done = request, Done(known)
    deadline: float | None = None
    dead: Point | None = None
    for attempt in range(_CRASHES):
        async with aclosing(ask_worker(asked, python, done, variables)) as worker:
            async for heard in worker:
                if heard["is"] == "end":
                    return
                if heard["is"] == "mistake":
                    raise InputError(str(heard["message"]))
                if heard["is"] == "begin" and deadline is None and request.budget_s is not None:
                    deadline = time.monotonic() + request.budget_s
                said = heard
                if heard["is"] == "crash":
                    dead = point_of(heard)
                    said = {**heard, "is": "point" if request.action == "bench" else "check"}
                if said["is"] in DONE and _is_last(said, request):
                    done.add(point_of(said))
                if said["is"] != "lost" and (attempt == 0 or said["is"] not in _FIRST):
                    yield said
        if deadline is not None:
            asked = replace(request, budget_s=max(0.0, deadline - time.monotonic()))
    raise TrialFault("exited", f"kernels took {_CRASHES} workers down; the last at {dead}", stage="load")


def _is_last(said: Said, request: Request) -> bool:
    """Whether nothing more is asked of the point: a check on several seeds says it once for each."""
    return said.get("seed") in (None, request.seed + request.seeds - 1)

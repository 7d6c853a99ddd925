"""Runs a command on another node of a Ray cluster as `ssh HOST` does: stdin, output and exit code are those of the command.

Run by path, with Ray and the standard library alone: `python -P on_node.py PLACEMENT HOST WORDS…`. PLACEMENT is one line of JSON with the
fields of `placement.Placement`. Beside a booter the command takes the place of this process. Elsewhere an actor starts it, which is of this program's
job: however this program ends, Ray ends the actor with it, and the end of a pipe tells the keeper over there to stop the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LOST = 137
"""Exit code of a command that was lost with its node, as a shell has it for SIGKILL: no fault of the setting."""
_CANNOT = 127
_LOOPBACK = "127.0.0.1"
_START_S = 60.0
"""For the actor to start: its GPUs are reserved."""


class Hands:
    """On the far node: starts one command, feeds it and tells its output."""

    def __init__(self, words: Sequence[str]) -> None:
        as_node_was_started()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            self._problem = f"dsabench: cannot run {words[0]}: {error.strerror}\n"

    def output(self) -> Iterator[bytes | int]:
        """What it writes, in pieces; its exit code last."""
        process = self._process
        if process is None:
            yield self._problem.encode()
            yield _CANNOT
            return
        assert process.stdout is not None
        with process.stdout as pipe:
            while piece := os.read(pipe.fileno(), 1 << 16):
                yield piece
        code = process.wait()
        yield code if code >= 0 else 128 - code

    def feed(self, data: bytes) -> None:
        """Write to its stdin; nothing ends it."""
        pipe = None if self._process is None else self._process.stdin
        if pipe is None or pipe.closed:
            return
        try:
            if data:
                pipe.write(data)
                pipe.flush()
            else:
                pipe.close()
        except OSError:
            return  # it has ended, which `output` tells


def as_node_was_started() -> int:
    """Undo what Ray sets for its actors, so that no server inherits it: a number of threads (one where they ask for no cores) and a niceness of 15.

    Returns:
        The niceness by which this process still stands behind the others of its node; without the right to lower it, that of Ray.

    """
    if b"OMP_NUM_THREADS=" not in Path("/proc/self/environ").read_bytes():
        os.environ.pop("OMP_NUM_THREADS", None)
    raylet = int(os.environ.get("RAY_RAYLET_PID", "0"))
    wanted = os.getpriority(os.PRIO_PROCESS, raylet) if raylet else 0
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():  # each has its own
            os.setpriority(os.PRIO_PROCESS, int(thread.name), wanted)
    return os.getpriority(os.PRIO_PROCESS, 0) - wanted


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the command."""
    placement, host, words = json.loads(argv[0]), argv[1], list(argv[2:])
    hosts: list[str] = placement["hosts"]
    if host == _LOOPBACK or (placement["has_gpus"] and host == hosts[0]):
        os.execvp(words[0], words)  # noqa: S606 - no shell is the point
    import ray  # noqa: PLC0415  (a second of start)
    from ray.exceptions import RayError  # noqa: PLC0415

    try:
        hands = _hands(ray, placement, hosts.index(host), words)
    except (RayError, ConnectionError, ValueError) as error:  # the group went with the run that reserved it
        return _lost(host, error)
    threading.Thread(target=_hand_on, args=(ray, hands), daemon=True).start()
    try:
        for reference in hands.output.remote():
            told = ray.get(reference)
            if isinstance(told, int):
                return told
            os.write(1, told)
    except RayError as error:
        return _lost(host, error)
    return _lost(host, "its output ended")


def _hands(ray: Any, placement: dict[str, Any], index: int, words: Sequence[str]) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    ray.init(
        address=placement["address"],
        namespace=placement["namespace"],
        _node_ip_address=placement["starter"],
        logging_level="ERROR",
        log_to_driver=False,
    )
    group = ray.util.get_placement_group(placement["group"])
    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    actor = ray.remote(Hands).options(
        num_cpus=0, num_gpus=placement["gpus"][index], max_concurrency=2, scheduling_strategy=where
    )
    hands = actor.remote(words)
    ray.get(hands.feed.remote(os.read(0, 4096)), timeout=_START_S)  # what shows the keeper that stdin reaches it
    return hands


def _hand_on(ray: Any, hands: Any) -> None:
    """Everything that comes on stdin, and its end."""
    data = b"\n"
    with suppress(ray.exceptions.RayError):  # whoever reads the output tells it
        while data:
            data = os.read(0, 4096)
            ray.get(hands.feed.remote(data))


def _lost(host: str, why: object) -> int:
    reason = str(why).strip().splitlines() or [type(why).__name__]
    os.write(2, f"dsabench: node {host} was lost: {reason[0]}\n".encode())
    return LOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

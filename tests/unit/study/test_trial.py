"""Trials against a server that somebody else restarts in the middle, or beside others' work: real sockets, the real runner."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.errors import TrialFault
from dsabench.machine.cpu_use import CpuSnapshot
from dsabench.model.record import Failed, Measured, Record, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.journal import Journal
from dsabench.results.samples import read_samples
from dsabench.runtimes.command import Launch
from dsabench.runtimes.external import ExternalRuntime
from dsabench.study.session import PlannedTrial, TrialSession
from dsabench.study.trial import late_beside_others, run_boot
from factories import ENVIRONMENT, make_workload
from paced_server import Pace, frames
from studies import Noting

PACE = Pace(meta={"spec_accept_length": 2.0, "dp_rank": 1})


class Restarting:
    """Speaks enough of sglang to be measured. Requests numbered `breaking` break, and behind the last a new process is."""

    def __init__(self, breaking: range, stall_s: float = 0.0) -> None:
        self.breaking, self.generated, self.stall_s = breaking, 0, stall_s
        self.paths: set[bytes] = set()
        self.open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            await self.answer(reader, writer)
        finally:
            writer.close()
            self.open.discard(task)

    async def close(self) -> None:
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the turn after

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                body = await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
                if not head.split(b" ")[1].startswith((b"/generate", b"/v1/completions")):
                    text = json.dumps(self.info()).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                    continue
                self.paths.add(head.split(b" ")[1])
                self.generated += 1
                if self.generated in self.breaking:
                    writer.transport.abort()
                    return
                # Keeps the interpreter's lock, so that the client's thread stands still too.
                ctypes.PyDLL(None).usleep(round(self.stall_s * 1e6))
                answer = b"".join(frames(PACE, json.loads(body))) + b"data: [DONE]\n\n"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

    def info(self) -> dict[str, object]:
        is_new = self.breaking and self.generated >= self.breaking.stop - 1
        return {"version": "0.5.23", "random_seed": 2 if is_new else 1, "reference": {"vocab_size": 256}}


async def measure(folder: Path, breaking: range, *, stall_s: float = 0.0, cores: tuple[int, ...] = ()) -> Record:
    served = Restarting(breaking, stall_s)
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        results = folder / "results"
        bench = TrialSession(
            "study", ExternalRuntime(Launch(base_url=url)), ENVIRONMENT, Journal(results), results, cores
        )
        workload = make_workload(num_prompts=30, max_concurrency=2)
        trial = Trial(runtime=RuntimeSpec(kind="external", model="m", base_url=url), workload=workload)
        [record] = await run_boot(bench, [PlannedTrial(trial, 0, "search")])
        await served.close()
        return record


async def test_what_the_server_tells_is_measured_and_kept(tmp_path: Path) -> None:
    record = await measure(tmp_path, range(0))
    assert isinstance(record.outcome, Measured)
    assert record.outcome.metrics["accept_length.dp_rank_1"].n == 30
    assert 0 <= record.outcome.metrics["host.cpu_busy_share"].value <= 1
    assert not [name for name in record.outcome.metrics if name.startswith(("gpu.", "energy_"))]
    assert record.outcome.samples is not None
    samples = read_samples(next(tmp_path.rglob("*.parquet")))
    assert {(sample.dp_rank, sample.finish_reason) for sample in samples} == {(1, "length")}


@pytest.mark.parametrize("breaking", [range(9, 10), range(5, 20)])
async def test_a_restart_is_named_whether_few_or_many_requests_broke(tmp_path: Path, breaking: range) -> None:
    """One broken request in thirty would pass as a failure; behind it answers a server that was not warmed up."""
    outcome = (await measure(tmp_path, breaking)).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.fault, outcome.transient) == ("server_restarted", True)
    assert "random_seed is another than before the run" in outcome.message


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A process that keeps the core busy and is nobody's child here: its parent has ended."""
    shell = (
        f"taskset -c {core} {sys.executable} -c 'import time\nwhile time.process_time() < 60: pass' >&- 2>&- & echo $!"
    )
    pid = int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, check=True).stdout)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_client_that_was_late_beside_others_is_tried_once_more(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    with neighbour(core):
        outcome = (await measure(tmp_path, range(0), stall_s=0.1, cores=(core,))).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.fault, outcome.transient) == ("client_saturated", True)
    assert re.search(r"; other processes used \d+% of the measured cores$", outcome.message)


def test_a_client_that_is_late_by_itself_or_another_fault_is_no_matter_of_neighbours() -> None:
    late = TrialFault("client_saturated", "late", stage="summarise")
    assert late_beside_others(late, 0.09) is None
    broken = TrialFault("request_errors", "reset", stage="load")
    assert late_beside_others(broken, 0.9) is None


@pytest.mark.parametrize(("endpoint", "path"), [(None, b"/generate"), ("completions", b"/v1/completions")])
async def test_a_workload_goes_to_its_endpoint(tmp_path: Path, endpoint: str | None, path: bytes) -> None:
    served = Restarting(range(0))
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        bench = TrialSession("study", ExternalRuntime(Launch(base_url=url)), ENVIRONMENT, Journal(tmp_path), tmp_path)
        workload = make_workload(num_prompts=4, max_concurrency=2, endpoint=endpoint)
        runtime = RuntimeSpec(kind="external", model="m", base_url=url)
        await run_boot(bench, [PlannedTrial(Trial(runtime=runtime, workload=workload), 0, "search")])
        await served.close()
    assert served.paths == {path}


async def test_a_busy_machine_is_named_once_before_the_first_boot(tmp_path: Path) -> None:
    now, heard = CpuSnapshot.now(()), Noting()
    cores = len(now.cores)
    busy = replace(now, at_s=now.at_s - 100, all_s=now.all_s - 50 * cores)  # half of every core, and none of it ours
    session = TrialSession("study", ExternalRuntime(Launch()), ENVIRONMENT, Journal(tmp_path), tmp_path, observer=heard)
    idle = replace(now, all_s=now.all_s + 1e6)  # nothing was used since
    for before, told in ((busy, 1), (None, 1), (idle, 1)):
        session.cpu_before = before
        await session.place()
        assert len(heard.notes) == told
    assert heard.notes == [
        f"note: other processes use {cores / 2:.1f} of {cores} cores; results will be noisier; continuing"
    ]

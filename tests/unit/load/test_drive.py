"""The hot path against real sockets: what comes back is kept as it came, and every way to fail is told apart."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from closed_port import nobody_listens
from dsabench.errors import InputError, TrialFault
from dsabench.load import process
from dsabench.load.drive import RawRun, send_plan
from dsabench.load.plan import ClosedLoop, LoadPlan, OpenLoop, Pacing, RequestTimeouts, SessionPacing, SizeLimits
from dsabench.load.read.replies import read_replies
from paced_server import Pace, PacedServer, connections_to
from unit.load.recorded import HEAD, chunk
from unit.load.wire_server import Script, WireServer

BODY = b'{"input_ids":[1,2],"sampling_params":{"max_new_tokens":4}}'
END = b"0\r\n\r\n"


_DRIVEN: list[RawRun] = []


@pytest.fixture(autouse=True)
def _close_recordings() -> Iterator[None]:
    yield
    while _DRIVEN:
        _DRIVEN.pop().recording.close()


async def run(
    url: str, count: int, pacing: Pacing | None = None, bodies: Sequence[bytes] = (), **changes: Any
) -> RawRun:
    driven = await send_plan(LoadPlan(url, bodies or [BODY] * count, pacing or ClosedLoop(count), **changes))
    _DRIVEN.append(driven)
    return driven


def body_of(driven: RawRun, index: int) -> bytes:
    return b"".join(data for _, data in driven.recording.reads(index))


async def outcome(script: Script, **timeouts: float) -> tuple[str | None, bytes]:
    async with WireServer(script) as server:
        driven = await run(server.url, 1, timeouts=RequestTimeouts(**timeouts))
    return driven.recording.error(0), body_of(driven, 0)


@pytest.mark.parametrize(
    ("pieces", "then", "error", "body"),
    [
        ([HEAD, chunk(b"a"), chunk(b"b"), END], "keep", None, b"ab"),
        ([HEAD, chunk(b"a"), b"0\r\nX-Trailer: 1\r\n\r\n"], "keep", None, b"a"),
        ([HEAD, chunk(b"0\r\n\r\n"), b"3\r\n0\r\n", b"\r\n", END], "keep", None, b"0\r\n\r\n0\r\n"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", b"cd"], "keep", None, b"abcd"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], "keep", None, b""),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"], "keep", None, b"x"),
        ([b"HTTP/1.1 200 OK\r\n\r\nab", b"cd"], "close", None, b"abcd"),
        ([b"HTTP/1.0 200 OK\r\n\r\nab", b"cd"], "half", None, b"abcd"),
        ([HEAD, chunk(b"a")], "close", "cut: the server closed the connection", b"a"),
        ([HEAD, chunk(b"a")], "half", "cut: the server closed the connection", b"a"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"], "close", "cut: the server closed the connection", b"ab"),
        ([HEAD, chunk(b"a")], "reset", "cut: ", b"a"),
        ([], "close", "reset: the server closed the connection", b""),
        ([], "reset", "reset: ", b""),
        ([b"HTTP/1.1 2"], "close", "reset: the server closed the connection", b""),
        ([b"SSH-2.0-nobody\r\n"], "hang", "protocol: ", b""),
        ([HEAD, b"zz\r\n"], "hang", "protocol: ", b""),
        ([b'HTTP/1.1 429 Slow\r\nContent-Length: 8\r\n\r\n{\n"a":1}'], "keep", 'http 429: { "a":1}', b'{\n"a":1}'),
        ([b"HTTP/1.1 503 No\r\nConnection: close\r\n\r\nbusy"], "close", "http 503: busy", b"busy"),
        (
            [b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"half")],
            "close",
            "http 500: half",
            b"half",
        ),
    ],
)
async def test_every_end_of_an_answer(pieces: list[bytes], then: Any, error: str | None, body: bytes) -> None:
    said, kept = await outcome(Script(pieces, then, pause_s=0.002))
    assert kept == body
    assert said == error if error is None or not error.endswith(": ") else str(said).startswith(error)


async def test_a_compressed_answer_is_refused() -> None:
    """It was asked for plain, and a bomb would be unpacked in memory."""
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    packed = gzip.compress(b"data: x\n\n" * 500)
    async with WireServer(Script([head, chunk(packed), END])) as server:
        driven = await run(server.url, 1)
    [reply] = read_replies(driven.recording, "generate", [4])
    assert reply.error == "garbage: a compressed answer (gzip), which was not asked for"


MIB = 1 << 20
LIMITS = {
    "a header without an end": ([b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * MIB] * 80], "headers of more than 64 KiB"),
    "headers without an end": ([b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n" * 10_000] * 900], "headers of more than 64 KiB"),
    "interim answers without an end": (
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000] * 200,
        "headers of more than 64 KiB",
    ),
    "a body without an end": ([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * MIB] * 80], "an answer of more than 2 MiB"),
    "trailers without an end": (
        [HEAD, b"0\r\n", *[b"x: " + b"y" * 65536 + b"\r\n"] * 900],
        "an answer of more than 2 MiB",
    ),
    "chunks of nothing": ([HEAD, *[b"1;" + b"e" * 65536 + b"\r\nx\r\n"] * 900], "an answer of more than 2 MiB"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_what_has_no_end_ends_at_its_limit(name: str) -> None:
    pieces, error = LIMITS[name]
    before = psutil.Process().memory_info().rss
    async with WireServer(Script(pieces, "hang")) as server:
        async with asyncio.timeout(10):
            driven = await run(server.url, 2, limits=SizeLimits(answer_bytes=2 * MIB))
    assert driven.recording.error(0) == driven.recording.error(1) == f"garbage: {error}"
    assert psutil.Process().memory_info().rss - before < 150 * MIB


def test_a_load_beyond_the_clients_own_limits_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import asyncio, resource\nfrom dsabench.errors import InputError\nfrom dsabench.load.drive import send_plan\n"
        "from dsabench.load.plan import ClosedLoop, LoadPlan\nresource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))\n"
        "try:\n    asyncio.run(send_plan(LoadPlan('http://127.0.0.1:1/x', [b'{}'] * 2000, ClosedLoop(1000), workers=2)))\n"
        "except InputError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "1,000 requests at a time need 756 open files in each of 2 client processes, and one may have 600: raise the limit "
        "(ulimit -Hn), take more workers, or lower max_concurrency\n"
    )
    (tmp_path / "range").write_text("32768\t32800\n")
    monkeypatch.setattr(process, "_PORT_RANGE", tmp_path / "range")
    process.refuse_more_connections(33, 1)
    with pytest.raises(
        InputError, match="34 requests at a time to one address need as many ports, and this machine has 33"
    ):
        process.refuse_more_connections(34, 1)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_run_has_a_limit_of_its_own(workers: int) -> None:
    async with PacedServer(Pace(ttft_s=0.0, gap_s=0.0)) as server:
        bodies = [b'{"input_ids":[1],"sampling_params":{"max_new_tokens":2000}}'] * 8
        with pytest.raises(TrialFault, match="the answers take more than half of the disk") as caught:
            await run(
                server.base_url + "/generate", 8, bodies=bodies, workers=workers, limits=SizeLimits(run_bytes=MIB)
            )
    assert caught.value.kind == "bad_response"


async def test_timeouts_hold_while_bytes_flood_and_trickle() -> None:
    flood, trickle = [HEAD, *[chunk(b"x" * 65536)] * 100_000], [HEAD, *[chunk(b"x")] * 10_000]
    for script in (Script(flood), Script(trickle, pause_s=0.01)):
        async with WireServer(script) as server:
            async with asyncio.timeout(10):
                driven = await run(server.url, 2, timeouts=RequestTimeouts(total_s=0.5))
        assert driven.recording.error(0) == "timeout: not finished after 0.5 s"


@pytest.mark.parametrize(
    ("pieces", "timeouts", "error"),
    [
        ([], {"first_byte_s": 0.15}, "timeout: no first byte after 0.15 s"),
        ([HEAD, chunk(b"a")], {"stall_s": 0.15, "first_byte_s": 9.0}, "timeout: nothing came for 0.15 s"),
        ([HEAD, chunk(b"a")], {"total_s": 0.2, "stall_s": 9.0}, "timeout: not finished after 0.2 s"),
    ],
)
async def test_each_phase_has_its_timeout(pieces: list[bytes], timeouts: dict[str, float], error: str) -> None:
    said, _ = await outcome(Script(pieces, "hang"), **timeouts)
    assert said == error


async def test_a_frame_of_many_megabytes_arrives_whole() -> None:
    data = os.urandom(1 << 16) * 160
    said, kept = await outcome(Script([HEAD, chunk(data), END]))
    assert said is None
    assert kept == data


async def test_a_large_request_is_sent_whole() -> None:
    body = b'{"text": "' + b"x" * 20_000_000 + b'"}'
    async with WireServer(Script([HEAD, END])) as server:
        driven = await run(server.url, 1, bodies=[body], headers={"Authorization": "Bearer k"})
    assert driven.recording.error(0) is None
    assert server.requests[0].endswith(body)
    assert b"\r\nAuthorization: Bearer k\r\n" in server.requests[0]


async def test_connections_are_kept_and_replaced_when_the_server_closes_them() -> None:
    async with WireServer(Script([HEAD, END])) as server:
        await run(server.url, 20, ClosedLoop(4))
        assert server.connections_made == 4
    closing = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with WireServer(Script([closing, END], "close")) as server:
        driven = await run(server.url, 20, ClosedLoop(4))
        assert server.connections_made == 20
    assert driven.recording.errors == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(min_size=1, max_size=200), max_size=8),
    st.lists(st.integers(0, 2000), max_size=6),
    st.sampled_from(["keep", "close", "reset"]),
    st.integers(0, 30),
)
def test_any_bytes_in_any_pieces(chunks: list[bytes], places: list[int], then: Any, missing: int) -> None:
    """Kept bytes are the sent ones, and an answer is whole if and only if its end came."""
    wire = HEAD + b"".join(map(chunk, chunks)) + END
    wire = wire[: len(wire) - missing]
    edges = sorted({0, len(wire), *(place % len(wire) for place in places)})
    pieces = [wire[a:b] for a, b in pairwise(edges)]
    said, kept = asyncio.run(outcome(Script(pieces, "close" if missing and then == "keep" else then, pause_s=0.0005)))
    whole = b"".join(chunks)
    if missing == 0:
        assert said is None
        assert kept == whole
    else:
        assert said is not None
        assert said.startswith(("cut: ", "reset: "))
        assert whole.startswith(kept)


@pytest.mark.parametrize("workers", [1, 3])
async def test_slots_are_exact_whatever_the_number_of_workers(workers: int) -> None:
    async with PacedServer(Pace(ttft_s=0.03, gap_s=0.002)) as server:
        driven = await run(server.base_url + "/generate", 60, ClosedLoop(7), workers=workers)
        assert len(server.served) == 60
        assert server.most_in_flight == 7
    recording = driven.recording
    assert recording.errors == {}
    assert len(driven.vitals) == workers
    assert (recording.scheduled_s[:7] == 0.0).all() or workers > 1
    assert (np.diff([recording.sent_s, recording.done_s], axis=0) > 0).all()
    assert b"".join(data for _, data in recording.reads(59)).endswith(b"data: [DONE]\n\n")


@pytest.mark.timing
@pytest.mark.parametrize("workers", [1, 2])
async def test_open_loop_sends_on_time_and_a_limit_holds(workers: int) -> None:
    due_s = np.linspace(0.0, 0.4, 40).tolist()
    async with PacedServer(Pace(ttft_s=0.1, gap_s=0.0)) as server:
        free = await run(server.base_url + "/generate", 40, OpenLoop(due_s), workers=workers)
        assert server.most_in_flight >= 8
    assert np.allclose(free.recording.scheduled_s, due_s)
    assert np.median(free.recording.sent_s - due_s) < 0.01
    async with PacedServer(Pace(ttft_s=0.1, gap_s=0.0)) as server:
        held = await run(server.base_url + "/generate", 40, OpenLoop(due_s, 4), workers=workers)
        assert server.most_in_flight == 4
    assert (held.recording.sent_s - due_s).max() > 0.3
    assert held.recording.late_s.max() < 0.1


async def test_turns_of_a_session_follow_each_other_with_time_to_think() -> None:
    turns, think_s = [(0, 1, 2), (3,), (4, 5)], [0.0, 0.05, 0.1, 0.0, 0.0, 0.05]
    async with PacedServer(Pace(ttft_s=0.02, gap_s=0.0)) as server:
        driven = await run(server.base_url + "/generate", 6, SessionPacing(turns, think_s, limit=2))
        assert server.most_in_flight == 2
    recording = driven.recording
    for before, after in [(0, 1), (1, 2), (4, 5)]:
        assert recording.scheduled_s[after] - recording.done_s[before] == pytest.approx(think_s[after], abs=1e-6)
        assert recording.sent_s[after] >= recording.scheduled_s[after]
    assert recording.sent_s[4] >= recording.done_s[3]


@pytest.mark.parametrize("workers", [1, 2])
async def test_cancelling_ends_everything_at_once(workers: int) -> None:
    async with PacedServer(Pace(ttft_s=0.01, gap_s=200.0)) as server:
        running = asyncio.create_task(run(server.base_url + "/generate", 8, workers=workers))
        while server.in_flight < 8:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 60)
        while connections_to(server.base_url):  # until pytest's limit: the answers themselves would take ten minutes
            await asyncio.sleep(0.01)
    assert [child for child in psutil.Process().children() if "dsabench.load" in " ".join(child.cmdline())] == []


_RUN = textwrap.dedent("""
    import asyncio, resource, sys
    from dsabench.errors import TrialFault
    from dsabench.load.drive import send_plan
    from dsabench.load.plan import ClosedLoop, LoadPlan
    body = b'{"input_ids":[1],"sampling_params":{"max_new_tokens":2000}}'
    async def main():
        if sys.argv[3] != "0":
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
        try:
            await send_plan(LoadPlan(sys.argv[1], [body] * 8, ClosedLoop(8), workers=int(sys.argv[2])))
        except TrialFault as fault:
            print(fault.kind, fault.message)
    asyncio.run(main())
""")


def child(url: str, workers: int, most_bytes: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", _RUN, url, str(workers), str(most_bytes)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_full_disk_is_one_clear_fault(workers: int) -> None:
    async with PacedServer(Pace(ttft_s=0.0, gap_s=0.0)) as server:
        process = child(server.base_url + "/generate", workers, 1 << 20)
        out, err = await asyncio.to_thread(process.communicate, timeout=60)
    assert out.startswith("disk_full the answers cannot be kept on disk: ")
    assert err == ""


async def test_nothing_outlives_a_killed_parent() -> None:
    async with PacedServer(Pace(ttft_s=0.01, gap_s=5.0)) as server:
        process = child(server.base_url + "/generate", 2, 0)
        while server.in_flight < 8:
            await asyncio.sleep(0.02)
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 60.0)
        assert alive == []


async def test_progress_and_a_large_result_do_not_mix() -> None:
    """A worker tells how far it is while it hands over more than a pipe takes at once."""
    told: list[int] = []
    async with PacedServer(Pace(ttft_s=0.0, gap_s=0.0)) as server:
        plan = LoadPlan(server.base_url + "/generate", [BODY] * 3000, ClosedLoop(50), workers=2)
        driven = await send_plan(plan, on_progress=lambda ended, _: told.append(ended))
    _DRIVEN.append(driven)
    assert driven.recording.errors == {}
    assert told == sorted(told)
    assert told[-1] == 3000


async def test_no_server_is_an_error_of_each_request() -> None:
    with nobody_listens() as url:
        driven = await run(url, 3, ClosedLoop(2))
    assert [str(driven.recording.error(index)).partition(":")[0] for index in range(3)] == ["connect"] * 3


@pytest.mark.parametrize("url", ["localhost:3000", "ftp://h/x", "http://", "http://[::1/x"])
async def test_what_is_no_url_is_said_at_once(url: str) -> None:
    with pytest.raises(InputError):
        await run(url, 1)


async def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(InputError, match="line break"):
        await run("http://127.0.0.1:1/", 1, headers={"X": "a\r\nY: b"})


def test_a_worker_that_dies_is_a_fault(tmp_path: Any) -> None:
    async def killed() -> None:
        async with PacedServer(Pace(ttft_s=0.01, gap_s=5.0)) as server:
            running = asyncio.create_task(run(server.base_url + "/generate", 4, workers=2))
            while server.in_flight < 4:
                await asyncio.sleep(0.01)
            workers: Sequence[psutil.Process] = psutil.Process().children()
            next(one for one in workers if "dsabench.load.client.worker_process" in " ".join(one.cmdline())).kill()
            with pytest.raises(TrialFault, match="a worker of the load generator died"):
                await running

    asyncio.run(killed())

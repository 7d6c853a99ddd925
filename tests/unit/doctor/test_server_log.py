"""What the lines of a server's log tell of its scheduler."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsabench.doctor.bottleneck import find_bottleneck
from dsabench.doctor.load_watch import LoadWatch
from dsabench.doctor.server_log import ServerLog
from dsabench.doctor.server_window import RankState, ServerLook, ServerSettings, ServerWindow

NOISE = '[2026-11-22 16:34:19] INFO:     127.0.0.1:42598 - "POST /generate HTTP/1.1" 200 OK'
PREFILL = (
    "[2026-11-22 16:34:19] Prefill batch, #new-seq: 2, #new-token: 3008, #cached-token: 0, token usage: 0.02, "
    "#running-req: 5, #queue-req: 3, #pending-token: 0, cuda graph: False, input throughput (token/s): 8568.99"
)
DECODE = (
    "[2026-11-22 16:34:19{}] Decode batch, #running-req: 12, #token: 900, token usage: 0.96, accept len: 2.50, "
    "accept rate: 0.60, cuda graph: True, gen throughput (token/s): 7.35, #queue-req: 4"
)
RETRACT = (
    "[2026-11-22 16:34:20] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.3"
)


def seen(tmp_path: Path, *lines: str, dp_ranks: int = 1) -> tuple[ServerLook, ...]:
    """The only look after these lines."""
    file = tmp_path / "server.log"
    file.write_text(f"{DECODE.format('')}\n")  # of an earlier load
    log = ServerLog(file, dp_ranks)
    with file.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)
    log.look()
    return log.between(time.time() - 60, time.time() + 60)


def test_a_decode_line_is_the_state_of_its_rank(tmp_path: Path) -> None:
    (look,) = seen(tmp_path, NOISE, DECODE.format(""))
    assert look == ServerLook({"": RankState(12, 4, 0.96, 0, in_graph=True)}, 2.5)


def test_the_new_requests_of_a_prefill_run_too_and_its_graph_is_not_that_of_decode(tmp_path: Path) -> None:
    (look,) = seen(tmp_path, DECODE.format(""), PREFILL)
    assert look.ranks[""] == RankState(7, 3, 0.02, 0, in_graph=True)


def test_retractions_are_counted(tmp_path: Path) -> None:
    (look,) = seen(tmp_path, RETRACT, DECODE.format(""), RETRACT)
    assert look.ranks[""].retracted == 6


def test_ranks_are_told_apart_and_one_that_is_silent_has_no_request(tmp_path: Path) -> None:
    (look,) = seen(tmp_path, DECODE.format(" DP1 TP1"), dp_ranks=3)
    assert look.ranks == {"0": RankState(0, 0), "1": RankState(12, 4, 0.96, 0, in_graph=True), "2": RankState(0, 0)}


@pytest.mark.parametrize("lines", [(), (NOISE,), (RETRACT,), (DECODE.format(" DP7"),), ("[] Decode batch, #token: 1",)])
def test_without_a_step_of_a_known_rank_there_is_nothing_to_see(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert seen(tmp_path, *lines) == ()


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    log = ServerLog(file)  # not there yet
    log.look()
    whole = DECODE.format("")
    file.write_text(whole[:60])
    log.look()
    assert log.between(0, time.time() + 60) == ()
    file.write_text(f"{whole}\n\xff")
    log.look()
    assert [look.running for look in log.between(0, time.time() + 60)] == [12]


def test_a_batch_that_a_running_server_was_told_to_keep_small_is_its_limit() -> None:
    """Not prefill, though the server would take more requests."""
    state = {"effective_max_running_requests_per_dp": 64, "pp_max_micro_batch_size": 2}
    settings = ServerSettings.of({"max_running_requests": 64, "internal_states": [state], "reference": {}})
    looks = (ServerLook({"": RankState(2, 6, 0.1)}),) * 10
    found = find_bottleneck(ServerWindow(settings, looks))
    assert (found.limit, found.fix) == ("running_requests", "--pp-max-micro-batch-size 4")


@pytest.mark.parametrize(
    ("thread_s", "busy_at_work", "limit"),
    [(9.9, 0.4, "host_cpu"), (9.9, 0.98, "prefill"), (2.0, 0.4, "prefill"), (9.9, None, None), (None, None, None)],
)
def test_a_load_is_judged_by_the_time_in_which_requests_were_in_flight(
    tmp_path: Path, thread_s: float | None, busy_at_work: float | None, limit: str | None
) -> None:
    """The GPU was idle for half of the whole time, for want of load."""
    file = tmp_path / "server.log"
    log = ServerLog(file)
    file.write_text(f"{DECODE.format('').replace('0.96', '0.20')}\n")
    begun = datetime.now(UTC)
    for _ in range(8):
        log.look()
    gpu = SimpleNamespace(busy_share=0.5, busy_at_work=busy_at_work)
    run = SimpleNamespace(started_at=begun, duration_s=10.0, machine=SimpleNamespace(gpus=(gpu,)))
    settings = ServerSettings(max_running=64, graph_batch=64)
    found = LoadWatch(settings, log, thread_s).bottleneck(run)
    assert found.limit == limit, found.line

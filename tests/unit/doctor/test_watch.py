"""What limits a server: twelve staged ones, each a process of its own, and servers that show nothing to go by."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.bottleneck import find_bottleneck
from dsabench.doctor.server_window import RankState, ServerLook, ServerSettings, ServerWindow
from dsabench.doctor.watch import watch
from dsabench.machine.checks import Finding
from dsabench.model.bottleneck import Bottleneck
from program import dsabench

INFO: dict[str, Any] = {
    "version": "0.5.16",
    "model_path": "deepseek-ai/DeepSeek-V3.2",
    "kv_cache_dtype": "bfloat16",
    "chunked_prefill_size": 8192,
    "cuda_graph_bs": [1, 2, 4, 8, 16, 32, 64, 128, 256],
    "disable_cuda_graph": False,
    "speculative_algorithm": None,
    "disaggregation_mode": "null",
    "internal_states": [{"effective_max_running_requests_per_dp": 256}],
}
RANK: dict[str, Any] = {
    "num_running_reqs": 24,
    "num_queue_reqs": 0,
    "token_usage": 0.35,
    "is_cuda_graph": 1.0,
    "num_retracted_requests_total": 0,
}


def scene(info: dict[str, Any] | None = None, *ranks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"info": {**INFO, **(info or {})}, "ranks": [{**RANK, **rank} for rank in ranks or ({},)], **more}


FULL = {"internal_states": [{"effective_max_running_requests_per_dp": 64}]}
DRAFTS = {"speculative_algorithm": "EAGLE"}

STAGED: dict[str, tuple[dict[str, Any], str | None]] = {
    "starved KV": (scene({}, {"num_running_reqs": 40, "num_queue_reqs": 12, "token_usage": 0.97}), "kv_cache"),
    "retractions": (
        scene({}, {"token_usage": [0.8, 0.95, 0.9]}, growing={"num_retracted_requests_total": 2}),
        "kv_cache",
    ),
    "tiny graph list": (
        scene({"cuda_graph_bs": [1, 2, 4, 8]}, {"num_running_reqs": [44, 48], "is_cuda_graph": 0.0}),
        "cuda_graph",
    ),
    "one slow DP rank": (
        scene(
            {},
            {"num_running_reqs": 12},
            {"num_running_reqs": 11},
            {"num_running_reqs": 30, "num_queue_reqs": [20, 28]},
            {"num_running_reqs": 12},
        ),
        "dp_imbalance",
    ),
    "long queue": (scene(FULL, {"num_running_reqs": 64, "num_queue_reqs": [90, 110]}), "running_requests"),
    "wasted drafts": (scene(DRAFTS, {"spec_accept_length": [1.02, 1.08]}), "accept_length"),
    "slow prefill": (scene({}, {"num_running_reqs": 6, "num_queue_reqs": [14, 22], "token_usage": 0.2}), "prefill"),
    "healthy": (scene(), "load"),
    "healthy, with drafts and ranks": (
        scene(DRAFTS, *({"num_running_reqs": [20, 24], "spec_accept_length": 2.6} for _ in range(4))),
        "load",
    ),
    "one busy rank of eight": (
        scene({"cuda_graph_bs": None}, {}, *({"num_running_reqs": 0, "is_cuda_graph": 0.0} for _ in range(7))),
        "load",
    ),
    "prompts alone": (scene({"cuda_graph_bs": None}, {"is_cuda_graph": 0.0}), None),
    "idle": (scene({}, {"num_running_reqs": [0, 0, 0, 0, 1], "token_usage": 0.0, "is_cuda_graph": 0.0}), "idle"),
    "batch and KV full": (scene(FULL, {"num_running_reqs": 64, "num_queue_reqs": 30, "token_usage": 0.96}), None),
    "KV on the way": (
        scene({"disaggregation_mode": "decode"}, {"num_running_reqs": 20, "num_queue_reqs": 9}),
        None,
    ),
}


@contextmanager
def staged(tmp_path: Path, what: dict[str, Any]) -> Iterator[str]:
    """The base URL of a process that shows a scene."""
    file = tmp_path / "scene.json"
    file.write_text(json.dumps(what), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("staged_server.py")), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def looks_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsabench.doctor.watch._EVERY_S", 0.1)


def limit_of(url: str, seconds: float = 0.9) -> Bottleneck:
    window = watched(url, seconds)
    assert isinstance(window, ServerWindow), window
    return find_bottleneck(window)


def watched(url: str, seconds: float) -> ServerWindow | Finding:
    return asyncio.run(watch(ServerProbe(url, timeout_s=5.0), seconds))


@pytest.mark.parametrize("name", STAGED)
def test_the_limit_of_a_staged_server(name: str, tmp_path: Path) -> None:
    what, limit = STAGED[name]
    with staged(tmp_path, what) as url:
        found = limit_of(url)
    assert found.limit == limit, found.line
    assert bool(found.fix) == (limit not in {None, "load", "idle"})


@pytest.mark.parametrize("queued", [0, 12])
def test_a_host_that_is_busy_is_never_called_anything_else(queued: int, tmp_path: Path) -> None:
    """Without a GPU to read it stays open whether the process waits for one or keeps it waiting."""
    with staged(tmp_path, scene({}, {"num_queue_reqs": queued}, burns=True)) as url:
        found = limit_of(url, 2.0)
    assert found.limit is None
    assert found.between == ("host_cpu", "prefill" if queued else "load")


def test_a_server_on_another_machine_is_not_said_to_prefill_slowly() -> None:
    looks = (ServerLook({"": RankState(6, 20, 0.2, 0.0, True)}),) * 10
    found = find_bottleneck(ServerWindow(ServerSettings(max_running=256), looks))
    assert found.limit is None
    assert set(found.between) == {"prefill", "host_cpu"}


def test_a_busy_process_beside_an_idle_gpu_is_the_host() -> None:
    for gpu, limit in ((0.4, "host_cpu"), (0.98, "load")):
        look = ServerLook({"": RankState(30, 0, 0.3, 0.0, True)}, thread_busy=0.99, gpu_busy=gpu)
        assert find_bottleneck(ServerWindow(ServerSettings(max_running=256), (look,) * 10)).limit == limit


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"text": "", "status": 404}, "HTTP 404"),
        ({"text": "# TYPE a counter\nnot prometheus at all {{{"}, "no server's of SGLang"),
        ({"text": "process_cpu_seconds_total 4\n"}, "no server's of SGLang"),
        ({"dies_after": 3}, "/metrics"),
    ],
    ids=["no metrics", "garbage", "another server", "dies"],
)
def test_a_server_with_nothing_to_go_by_is_a_problem_in_one_line(
    what: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with staged(tmp_path, {**scene(), **what}) as url:
        found = watched(url, 0.9)
    assert isinstance(found, Finding)
    assert found.verdict == "problem"
    assert told in found.line
    assert "\n" not in found.line


def test_the_command_prints_the_limit(tmp_path: Path) -> None:
    with staged(tmp_path, STAGED["starved KV"][0]) as url:
        shown = dsabench("doctor", "--base-url", url, "--watch", "6s")
        told = dsabench("doctor", "--base-url", url, "--watch", "6s", "--json")
    assert shown.returncode == told.returncode == 0
    assert "KV cache: use is 97%, requests wait in 100% of the looks" in shown.stdout
    assert "→ --kv-cache-dtype fp8_e4m3" in shown.stdout
    assert json.loads(told.stdout)["bottleneck"]["limit"] == "kv_cache"


def test_a_server_that_is_not_there_is_a_problem() -> None:
    done = dsabench("doctor", "--base-url", "http://127.0.0.1:9", "--watch", "1s", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["problems"] == 1
    assert "cannot connect" in told["findings"][0]["line"]
    assert "bottleneck" not in told


def test_watching_needs_a_server() -> None:
    done = dsabench("doctor", "--watch", "1s")
    assert done.returncode == 2
    assert "--base-url" in done.stderr

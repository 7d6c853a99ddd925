"""Prefill and decode as two programs behind a router: the same answers, and clear errors where one is missing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time

import psutil
import pytest

from closed_port import nobody_listens
from slowness import slowness
from unit.reference.engines import prompt
from unit.reference.server.serving import Server, environment, serving

FLOAT = ("--dtype", "float32")
HOT = ("--disable-radix-cache", "--enable-hisparse", "--hisparse-config", json.dumps({"device_buffer_size": 64}))
EAGLE = ("--speculative-algorithm", "EAGLE")
PROMPTS = [prompt(length, seed=length) for length in (1, 40, 200, 300)]


def listening(server: Server, besides: int | None = None) -> int:
    """The port on which the program listens, or the other one of two; waits until it does."""
    while True:
        mine = psutil.Process(server.process.pid).net_connections("tcp")
        ports = {tcp.laddr.port for tcp in mine if tcp.status == psutil.CONN_LISTEN} - {besides}
        if ports:
            return ports.pop()
        assert server.process.poll() is None
        time.sleep(0.02)


@contextlib.contextmanager
def disaggregated(prefill_flags=(), decode_flags=()):
    """A router in front of two servers → (router, prefill server, decode server)."""
    where = ("--disaggregation-bootstrap-port", "0")
    with contextlib.ExitStack() as stack:
        prefill = stack.enter_context(serving(*FLOAT, "--disaggregation-mode", "prefill", *where, *prefill_flags))
        decode = stack.enter_context(serving(*FLOAT, "--disaggregation-mode", "decode", *decode_flags))
        bootstrap = str(listening(prefill, besides=int(prefill.url.rpartition(":")[2])))
        argv = [sys.executable, "-m", "dsabench.reference.router", "--pd-disaggregation", "--port", "0"]
        argv += ["--prefill", prefill.url, bootstrap, "--decode", decode.url]
        process = stack.enter_context(subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, text=True))
        router = Server(process)
        stack.callback(router.stop)
        router.url = f"http://127.0.0.1:{listening(router)}"
        wait_healthy(router)
        yield router, prefill, decode


def wait_healthy(server):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if server.get("/health")[0] == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the router does not answer")


@pytest.fixture(scope="module")
def known():
    with serving(*FLOAT) as server:
        return {
            "greedy": [server.generate(one, new=40)["output_ids"] for one in PROMPTS],
            "seeded": server.generate(PROMPTS[1], new=40, temperature=0.9, seed=5)["output_ids"],
        }


@pytest.fixture(scope="module")
def plain():
    with disaggregated() as servers:
        yield servers


def test_answers_are_those_of_one_server(known, plain):
    router, prefill, decode = plain
    assert [router.generate(one, new=40)["output_ids"] for one in PROMPTS] == known["greedy"]
    assert router.generate(PROMPTS[1], new=40, temperature=0.9, seed=5)["output_ids"] == known["seeded"]
    first, second = prefill.counters(), decode.counters()
    assert sum(first["decode_step_requests"].values()) == 0
    assert sum(second["prefill_step_tokens"].values()) == 0
    assert first["handed_over"] == second["handed_over"]
    assert first["handed_over"]["tokens"] == sum(map(len, PROMPTS)) + len(PROMPTS[1])
    assert sum(second["tokens"].values()) == 39 * (len(PROMPTS) + 1)


def test_batches_streams_and_openai(known, plain):
    router = plain[0]
    asked = {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True}
    answers = json.loads(router.post("/generate", {"input_ids": PROMPTS, "sampling_params": asked})[1])
    assert [answer["output_ids"] for answer in answers] == known["greedy"]
    frames = router.frames({"input_ids": PROMPTS[2], "sampling_params": asked})
    assert frames[-1]["output_ids"] == known["greedy"][2]
    assert len(frames) > 10
    body = {"prompt": PROMPTS[:2], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    status, text = router.post("/v1/completions", body)
    assert status == 200, text
    assert json.loads(text)["usage"]["completion_tokens"] == 8
    assert router.post("/generate", {**asked, "input_ids": [999]})[0] == 400
    assert router.post("/generate", b"nonsense")[0] == 400
    assert router.post("/flush_cache", {})[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prefill_flags", "decode_flags"),
    [(EAGLE, (*EAGLE, "--tp-size", "2")), ((), (*HOT, "--max-total-tokens", "256"))],
    ids=["mtp-tp", "hisparse"],
)
def test_with_everything_else(known, prefill_flags, decode_flags):
    with disaggregated(prefill_flags, decode_flags) as (router, _, decode):
        answers = [router.generate(one, new=40) for one in PROMPTS]
        assert [answer["output_ids"] for answer in answers] == known["greedy"]
        if "--enable-hisparse" in decode_flags:  # whose device is too small for the longest prompt
            assert decode.counters()["hot_buffer"]["hits"] > 0
        else:
            assert answers[2]["meta_info"]["spec_accept_length"] > 1.2


def test_without_a_router_and_without_the_other(plain):
    _, prefill, decode = plain
    status, text = decode.post("/generate", {"text": "a"})
    assert (status, "takes requests from its router" in text) == (400, True)
    with nobody_listens() as url:
        nobody = {"bootstrap_host": "127.0.0.1", "bootstrap_port": int(url.rpartition(":")[2]), "bootstrap_room": 1}
        status, text = decode.post("/generate", {"text": "a", **nobody})
    assert (status, "the prefill server at 127.0.0.1" in text) == (500, True)
    status, text = prefill.post("/generate", {"text": "a", "bootstrap_room": 1})
    assert (status, "bootstrap_room without" in text) == (400, True)


@pytest.mark.slow
@pytest.mark.timing
def test_servers_that_do_not_fit_each_other_and_one_that_is_killed():
    with disaggregated((), ("--kv-cache-dtype", "fp8_e4m3")) as (router, prefill, _):
        answer = router.generate(PROMPTS[1], new=4)
        assert answer["output_ids"] == []
        finish = answer["meta_info"]["finish_reason"]
        assert (finish["type"], "other KV settings" in finish["message"]) == ("abort", True)
        prefill.process.kill()
        prefill.process.wait()
        started = time.monotonic()
        status, text = router.post("/generate", {"input_ids": PROMPTS[0], "sampling_params": {"max_new_tokens": 2}})
        assert (status >= 500, "gone" in text) == (True, True)
        took_s = time.monotonic() - started
        assert took_s < 5 * slowness()
        assert router.get("/health")[0] == 503


def test_many_at_once(known, plain):
    router = plain[0]
    answers: dict[int, list[int]] = {}

    def ask(index):
        answers[index] = router.generate(PROMPTS[index % 4], new=40)["output_ids"]

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers[index] == known["greedy"][index % 4] for index in range(12))

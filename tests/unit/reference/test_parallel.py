"""A split model answers as a whole one does, and dies as one."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
import time

import psutil
import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.engine import kv_cache, sharding, weights
from dsabench.reference.engine.batch import ForwardBatch, PrefillBatch, PrefillSpan
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.layout import ParallelLayout, RankPlacement
from dsabench.reference.engine.sizes import SIZES
from dsabench.reference.server.arguments import parse
from slowness import slowness
from unit.reference.engines import prompt
from unit.reference.server.serving import serving

FLOAT = ("--dtype", "float32")
PROMPTS = [prompt(length, seed=length) for length in (5, 64, 200)]


def outputs(server, prompts=PROMPTS, new=12):
    answers: list[dict] = [{} for _ in prompts]

    def ask(index):
        answers[index] = server.generate(prompts[index], new=new)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture(scope="module")
def alone():
    """What one rank says."""
    with serving(*FLOAT, model="tiny-moe") as server:
        return [answer["output_ids"] for answer in outputs(server)]


@pytest.mark.parametrize(
    ("flags", "groups"),
    [
        (("--tp-size", "2"), 1),
        pytest.param(("--tp-size", "2", "--ep-size", "2"), 1, marks=pytest.mark.slow),
        (("--dp-size", "2"), 2),
        pytest.param(
            ("--tp-size", "4", "--dp-size", "2", "--ep-size", "2", "--enable-dp-attention"), 2, marks=pytest.mark.slow
        ),
    ],
    ids=["tp", "ep", "dp", "dp-attention"],
)
def test_a_split_model_answers_as_a_whole_one(alone, flags, groups):
    with serving(*FLOAT, *flags, model="tiny-moe") as server:
        answers = outputs(server)
        assert [answer["output_ids"] for answer in answers] == alone
        info = server.info()
        assert len(info["internal_states"]) == groups
        counters = info["reference"]["counters"]
        assert counters["prompt_tokens"] == sum(map(len, PROMPTS))
        if groups == 2:
            assert {answer["meta_info"]["dp_rank"] for answer in answers} == {0, 1}
            shares = [one["prompt_tokens"] for one in info["reference"]["counters_of_groups"]]
            assert all(shares)
            assert sum(shares) == counters["prompt_tokens"]
        if "--ep-size" in flags:
            ranks = [set(one) for one in info["reference"]["expert_tokens_of_ranks"]]
            assert ranks[0] <= {"0", "1", "2", "3"}
            assert ranks[-1] <= {"4", "5", "6", "7"}
            assert ranks[0]
            assert ranks[-1]
        assert info["reference"]["heads_per_rank"] == (4 if flags[0] == "--dp-size" else 2)


@pytest.mark.slow
def test_speculation_with_two_ranks(alone):
    with serving(*FLOAT, "--tp-size", "2", "--speculative-algorithm", "EAGLE", model="tiny-moe") as server:
        answers = outputs(server)
        assert [answer["output_ids"] for answer in answers] == alone
        assert max(answer["meta_info"]["spec_accept_length"] for answer in answers) > 1.5


@pytest.mark.parametrize("parallel", [ParallelLayout(tp=2), ParallelLayout(tp=4, ep=2), ParallelLayout(tp=4, ep=4)])
@torch.inference_mode()
def test_parts_of_every_layer_add_up(parallel):
    """Attention and MLP of the ranks, summed by hand, against the whole layer's."""
    size = SIZES["tiny-moe"]
    model = weights.random_model(size, 0, torch.float32, 256, "cpu")
    slots = torch.arange(100)
    batch = ForwardBatch(
        torch.arange(100),
        slots,
        slots,
        slots,
        slots,
        "flashmla_sparse",
        PrefillBatch((PrefillSpan(0, 100, slots, slots),)),
    )
    now = model.start(batch, EngineCounters())
    x = torch.randn(100, size.hidden, generator=torch.Generator().manual_seed(1))
    for block, cache in zip(model.blocks, kv_cache.allocate(size, 128, "bfloat16", "cpu"), strict=True):
        parts = [sharding.shard_block(block, parallel.seat(rank)) for rank in range(parallel.tp)]
        whole = block.attention(x, now, cache)
        assert_close(sum(part.attention(x, now, cache) for part in parts), whole)
        assert parts[0].attention.size.heads == size.heads // parallel.tp
        assert_close(sum(run_mlp(part, x) for part in parts), run_mlp(block, x))
        assert sharding.shard_block(block, RankPlacement()).attention.size == size


def run_mlp(block, x):
    return block.mlp(x, EngineCounters()) if hasattr(block.mlp, "router") else block.mlp(x)


def assert_close(one, other):
    assert float((one - other).abs().max()) < 1e-4 * float(other.abs().max())


@pytest.mark.slow
def test_the_least_loaded_replica_gets_the_next_request():
    with serving("--dp-size", "2") as server:
        slow = threading.Thread(target=server.generate, args=(prompt(10), 1500))
        slow.start()
        wait_until_it_generates(server)
        ranks = [server.generate(prompt(10, seed=seed), new=2)["meta_info"]["dp_rank"] for seed in range(4)]
        assert len(set(ranks)) == 1, "one replica is busy with a long answer"
        slow.join()
        assert server.post("/flush_cache", {})[0] == 200


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("flags", [("--tp-size", "2"), ("--dp-size", "2")], ids=["tp", "dp"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_all_of_them_at_once_and_is_named(flags, victim):
    with serving(*flags) as server:
        ranks = sorted(psutil.Process(server.process.pid).children(), key=lambda process: process.pid)
        assert len(ranks) == 2
        asking = threading.Thread(target=ask_in_vain, args=(server,))
        asking.start()
        wait_until_it_generates(server)
        started = time.monotonic()
        os.kill(ranks[victim].pid, signal.SIGKILL)
        assert server.process.wait(60) == 128 + signal.SIGKILL
        took_s = time.monotonic() - started
        assert took_s < 4 * slowness()
        assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
        name = f"rank {victim}" if flags[0] == "--tp-size" else f"rank 0 of replica {victim}"
        asking.join()
        assert f"{name} was killed by SIGKILL" in server.lines[-1]


@pytest.mark.slow
def test_ranks_do_not_outlive_a_killed_server():
    with serving("--tp-size", "2", "--dp-size", "2") as server:
        ranks = psutil.Process(server.process.pid).children()
        assert len(ranks) == 4
        server.process.kill()
        assert not psutil.wait_procs(ranks, timeout=60)[1]


def wait_until_it_generates(server):
    while server.counters()["generated_tokens"] < 2:
        time.sleep(0.01)


def ask_in_vain(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.post("/generate", long_request())


def long_request():
    return {"input_ids": prompt(20), "sampling_params": {"max_new_tokens": 2000, "temperature": 0, "ignore_eos": True}}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tp-size", "3"), "--tp-size: 3 ranks cannot share the 4 heads of tiny equally"),
        (("--ep-size", "2", "--tp-size", "2"), "--ep-size: tiny has no experts (allowed: 1)"),
        (("--model", "tiny-moe", "--ep-size", "3", "--tp-size", "4"), "--ep-size: 3 does not divide --tp-size 4"),
        (("--enable-dp-attention",), "--dp-size 1 is not allowed"),
        (("--enable-dp-attention", "--tp-size", "2", "--dp-size", "4"), "that divide --tp-size 2"),
    ],
)
def test_what_cannot_be_split_is_one_line(flags, message):
    with pytest.raises(InputError) as error:
        parse(["--model", "tiny", *flags])
    assert message in str(error.value)

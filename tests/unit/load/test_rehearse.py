from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from dsabench.errors import TrialFault
from dsabench.load.draw.prompts import draw_prompts, draw_rehearsal
from dsabench.load.load_test import Rehearsal, rehearse
from dsabench.load.requests import LoadTarget
from dsabench.model.workload import ConversationSpec, Workload

WORKLOAD = Workload(
    name="w", dataset="random-ids", input_len=8, output_len=2, num_prompts=12, max_concurrency=3, seed=5
)


@asynccontextmanager
async def compiling_server(first_s: float, seen: list[list[int]], status: int = 200) -> AsyncIterator[LoadTarget]:
    """Answers at once, but for the first request of each prompt length."""
    lengths: set[int] = set()

    async def generate(request: web.Request) -> web.Response:
        asked = await request.json()
        seen.append(asked["input_ids"])
        if len(asked["input_ids"]) not in lengths:
            lengths.add(len(asked["input_ids"]))
            await asyncio.sleep(first_s)
        tokens = asked["sampling_params"]["max_new_tokens"]
        reason = '{"type": "length"}'
        meta = f'{{"output_ids": [1], "meta_info": {{"completion_tokens": {tokens}, "finish_reason": {reason}}}}}'
        return web.Response(text=f"data: {meta}\n\ndata: [DONE]\n\n", status=status)

    app = web.Application()
    app.router.add_post("/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield LoadTarget(base_url=f"http://127.0.0.1:{port}", model="m", vocab_size=1000)
    finally:
        await runner.cleanup()


@pytest.mark.timing
async def test_it_goes_on_until_the_time_settles() -> None:
    seen: list[list[int]] = []
    flushed: list[float] = []

    async def flush() -> None:
        flushed.append(time.monotonic())

    async with compiling_server(0.5, seen) as target:
        done = await rehearse(target, WORKLOAD, flush)
    assert done.settled
    assert done.warning is None
    assert done.passes_s[0] > 0.5 > 10 * done.passes_s[-1]
    assert len(flushed) == len(done.passes_s) == 3
    assert len(seen) == 3 * 6  # twice the concurrency, each time
    assert len({tuple(prompt) for prompt in seen}) == len(seen)


def asking(passes: int) -> Workload:
    return WORKLOAD.model_copy(update={"rehearsal_passes": passes})


async def test_it_is_bounded_and_says_what_it_saw() -> None:
    async def flush() -> None:
        return None

    async with compiling_server(0.2, []) as target:
        done = await rehearse(target, asking(1), flush)
        assert not done.settled
        assert done.warning == "one pass of the rehearsal was asked for: nothing says that its time had settled"
    async with compiling_server(0.2, []) as target:
        done = await rehearse(target, asking(2), flush)
    assert len(done.passes_s) == 2
    assert "had not settled after 2 passes" in (done.warning or "")


async def test_a_failure_is_one_of_the_warm_up() -> None:
    async def flush() -> None:
        return None

    async with compiling_server(0.0, [], status=500) as target:
        with pytest.raises(TrialFault) as caught:
            await rehearse(target, WORKLOAD, flush)
    assert caught.value.stage == "warmup"


async def test_without_warm_up_there_is_none() -> None:
    async def flush() -> None:
        raise AssertionError

    nobody = LoadTarget(base_url="http://127.0.0.1:1", model="m", vocab_size=10)
    assert await rehearse(nobody, WORKLOAD.model_copy(update={"warmup_requests": 0}), flush) == Rehearsal()


@pytest.mark.parametrize(
    ("passes_s", "settled"),
    [
        ((), False),
        ((9.0,), False),
        ((9.0, 2.0), False),
        ((9.0, 2.0, 2.05), True),
        ((2.0, 2.2), False),
        ((0.01, 0.04), True),
    ],
)
def test_settled_means_as_fast_as_before(passes_s: tuple[float, ...], *, settled: bool) -> None:
    assert Rehearsal(passes_s).settled is settled


def test_passes_have_the_measured_lengths_and_other_content() -> None:
    target = LoadTarget(base_url="http://x", model="m", vocab_size=1000)
    mixed = WORKLOAD.model_copy(update={"range_ratio": 0.25, "input_len": 64, "warmup_requests": 0})
    measured = draw_prompts(target, mixed).measured
    first, second = (draw_rehearsal(target, mixed, 12, number) for number in (0, 1))
    for rehearsed in (first, second):
        assert [(p.input_len, p.output_len) for p in rehearsed] == [(p.input_len, p.output_len) for p in measured]
        assert {p.input_ids for p in rehearsed}.isdisjoint({p.input_ids for p in measured})
    assert {p.input_ids for p in first}.isdisjoint({p.input_ids for p in second})


async def test_prompts_of_mixed_length_are_all_rehearsed() -> None:
    """Each length may be a shape of its own: half of them compiled inside a measurement once, for 18 s each."""
    seen: list[list[int]] = []

    async def flush() -> None:
        return None

    mixed = WORKLOAD.model_copy(update={"range_ratio": 0.5})
    async with compiling_server(0.0, seen) as target:
        await rehearse(target, mixed.model_copy(update={"rehearsal_passes": 1}), flush)
    assert len(seen) == mixed.num_prompts


async def test_every_turn_of_a_session_is_rehearsed() -> None:
    """Each turn sees more than the one before: a kernel for the longest compiled inside a measurement once, for 7 s."""
    seen: list[list[int]] = []

    async def flush() -> None:
        return None

    turns = WORKLOAD.model_copy(update={"max_concurrency": 1, "sessions": ConversationSpec(turns=6, opening_len=40)})
    async with compiling_server(0.0, seen) as target:
        await rehearse(target, turns.model_copy(update={"rehearsal_passes": 1}), flush)
        measured = draw_prompts(target, turns).measured
    assert sorted(map(len, seen)) == sorted(len(prompt.input_ids) for prompt in measured)

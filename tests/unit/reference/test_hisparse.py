"""HiSparse changes where rows are, never what is said."""

from __future__ import annotations

import json

import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.engine.request import Request, SamplingParams
from dsabench.reference.server.arguments import parse
from unit.reference.engines import engine, greedy, prompt
from unit.reference.server.serving import serving

FLOAT = ("--dtype", "float32")
PLAIN = ("--disable-radix-cache",)


def hot(**config):
    return (*PLAIN, "--enable-hisparse", "--hisparse-config", json.dumps({"device_buffer_size": 64, **config}))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("more", [(), ("--kv-cache-dtype", "fp8_e4m3"), ("--chunked-prefill-size", "50")])
@pytest.mark.parametrize("mha", [None, 500])
def test_logits_are_those_without(more, mha):
    """Shorter than the buffer, growing past it, a page more, several pages more; together, so that they are mixed."""
    prompts = [prompt(length, seed=length) for length in (3, 40, 63, 64, 65, 129, 200, 300)]
    expected = greedy(engine(*FLOAT, *PLAIN, *more, mha=mha), *prompts, new=60)
    subject = engine(*FLOAT, *hot(), *more, mha=mha)
    for (tokens, logits), (known_tokens, known) in zip(greedy(subject, *prompts, new=60), expected, strict=True):
        assert tokens == known_tokens
        assert torch.equal(logits, known)
    counts = subject.counters.hot_buffer
    assert counts["hits"] > counts["misses"] > 0
    row = subject.caches[0].rows[0].nbytes
    assert counts["bytes_in"] == counts["misses"] * row
    decoded = subject.counters.tokens["decode.flashmla_kv"] + subject.counters.tokens["decode.flashmla_sparse"]
    assert counts["bytes_out"] == (decoded + sum(map(len, prompts))) * row * subject.settings.size.layers
    assert subject.scheduler.hot.pool.used == 0


@pytest.mark.parametrize("more", [(), ("--kv-cache-dtype", "fp8_e4m3"), ("--chunked-prefill-size", "50")])
@pytest.mark.parametrize("buffer", [32, 64])
def test_verifications_say_what_they_do_without(more, buffer):
    """Several new tokens of a request attend in turns, even where the buffer holds a single selection."""
    prompts = [prompt(length, seed=length) for length in (3, 29, 31, 32, 40, 61, 64, 65, 129, 200, 300)]
    drafts = ("--speculative-algorithm", "EAGLE", "--page-size", "16")
    plain = served(engine(*FLOAT, *PLAIN, *more, *drafts), prompts)
    subject = engine(*FLOAT, *hot(device_buffer_size=buffer), *more, *drafts)
    assert served(subject, prompts) == plain
    assert min(subject.counters.hot_buffer[kind] for kind in ("hits", "misses")) > 0
    assert subject.counters.accept_length > 1.5
    assert subject.scheduler.hot.pool.used == 0


def served(subject, prompts, new=60):
    wanted = SamplingParams(new, temperature=0.0, ignore_eos=True)
    requests = [Request(str(index), tokens, wanted) for index, tokens in enumerate(prompts)]
    for request in requests:
        subject.scheduler.add(request)
    while subject.step() is not None:
        pass
    return [(request.output, request.accepted) for request in requests]


def test_a_buffer_of_one_selection_loses_none_of_it():
    prompts = [prompt(length, seed=length) for length in (20, 33, 100, 300)]
    flags = (*FLOAT, "--page-size", "16")
    expected = greedy(engine(*flags, *PLAIN), *prompts, new=100)
    found = greedy(engine(*flags, *hot(device_buffer_size=32)), *prompts, new=100)
    for (tokens, logits), (known_tokens, known) in zip(found, expected, strict=True):
        assert tokens == known_tokens
        assert torch.equal(logits, known)


def test_short_sequences_need_no_lookup():
    subject = engine(*hot())
    greedy(subject, prompt(20), prompt(30), new=30)
    counts = subject.counters.hot_buffer
    assert counts["short_sequence_tokens"] > 0
    assert counts["hits"] == counts["misses"] == 0


def test_the_least_recently_used_row_goes():
    """The smallest buffer misses most, one that holds everything never."""
    misses = []
    for size in (64, 128, 256, 512):
        subject = engine(*FLOAT, *hot(device_buffer_size=size))
        greedy(subject, prompt(400), new=40)
        misses.append(subject.counters.hot_buffer["misses"])
    assert misses == sorted(misses, reverse=True)
    assert misses[0] > misses[2] > misses[3] == 0


def test_one_buffer_tells_the_hits_of_every_smaller_one():
    def counted(size):
        subject = engine(*FLOAT, *hot(device_buffer_size=size))
        greedy(subject, prompt(600), prompt(700, 1), new=200)
        return subject.counters

    largest = counted(512).hot_buffer_rows
    looked_up, shares = largest.total(), []
    for size in (64, 128, 192, 256, 384, 512):
        counts = counted(size).hot_buffer
        foreseen = sum(count for rows, count in largest.items() if 0 < rows <= size) / looked_up
        shares.append(counts["hits"] / (counts["hits"] + counts["misses"]))
        assert foreseen == pytest.approx(shares[-1], abs=0.03)
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert 0.8 < shares[-1] < 1.0


@pytest.mark.parametrize("drafts", [(), ("--speculative-algorithm", "EAGLE")])
def test_tables_agree_with_what_is_stored(drafts):
    """After every step: slots and positions are inverse, and the device's row is the host's."""
    subject = engine(*FLOAT, *hot(), *drafts)
    for length in (30, 150, 310):
        subject.scheduler.add(
            Request(str(length), prompt(length), SamplingParams(50, temperature=0.0, ignore_eos=True))
        )
    while subject.step() is not None:
        buffers = subject.scheduler.hot
        for request in subject.scheduler.running:
            slots = subject.scheduler._slots[request.row]
            for layer, cache in enumerate(buffers.caches):
                slot_of, position_of = buffers.slot_of[layer, request.row], buffers.position_of[layer, request.row]
                positions = (slot_of >= 0).nonzero().squeeze(1)
                held = slot_of[positions].long()
                assert len(set(held.tolist())) == len(held)
                assert torch.equal(position_of[held].long(), positions)
                # the draft head has not seen the last token yet
                stored = positions < request.stored_tokens - (layer == subject.settings.size.layers)
                device_slots = buffers.slots[request.row, held[stored]]
                assert torch.equal(cache.rows[device_slots], buffers.host[layer][slots[positions[stored]]])


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_the_block_size_changes_how_rows_are_copied_and_not_which(block):
    subject = engine(*FLOAT, *hot(swap_in_block_size=block))
    ((tokens, _),) = greedy(subject, prompt(300), new=30)
    ((known, _),) = greedy(engine(*FLOAT, *PLAIN), prompt(300), new=30)
    assert tokens == known


def test_more_long_requests_run_under_the_same_device_cap():
    """1,152 tokens on the device hold one prompt of 1,000 with its answer, or a prompt and the buffers of others."""
    cap = (*FLOAT, "--max-total-tokens", "1152")
    most = {}
    texts = {}
    for name, flags in (("plain", PLAIN), ("hot", hot(host_to_device_ratio=16))):
        subject = engine(*cap, *flags)
        wanted = SamplingParams(40, temperature=0.0, ignore_eos=True)
        requests = [Request(str(seed), prompt(1000, seed), wanted) for seed in range(4)]
        for request in requests:
            subject.scheduler.add(request)
        while subject.step() is not None:
            pass
        texts[name] = [request.output for request in requests]
        most[name] = max(subject.counters.decode_step_requests)
        assert len(subject.caches[0].rows) == 1152 + 64
    assert texts["plain"] == texts["hot"]
    assert most == {"plain": 1, "hot": 3}


def test_the_server_shows_its_buffers():
    with serving(*hot(), "--max-total-tokens", "640") as server:
        server.generate(prompt(200), new=8)
        info = server.info()
        assert info["reference"]["hisparse"] == {
            "device_buffer_size": 64,
            "host_to_device_ratio": 2,
            "swap_in_block_size": 960,
        }
        assert info["reference"]["counters"]["hot_buffer"]["hits"] > 0
        assert (info["max_total_tokens"], info["max_total_num_tokens"]) == (640, 1280)
        too_long = {"input_ids": prompt(700), "sampling_params": {"max_new_tokens": 1}}
        status, text = server.post("/generate", too_long)
        assert status == 400
        assert "prefilled on the device" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--enable-hisparse",), "--enable-hisparse needs --disable-radix-cache"),
        (hot(device_buffer_size=16), "device_buffer_size (16) must be no smaller than top_k (32)"),
        (hot(device_buffer_size=100), "is not a multiple of --page-size 64"),
        (hot(swap_in_block_size=2000), "swap_in_block_size: Input should be less than or equal to 1024"),
        (hot(buffer=1), "buffer: Extra inputs are not permitted"),
        (("--hisparse-config", "{}"), "without --enable-hisparse"),
        ((*PLAIN, "--enable-hisparse", "--hisparse-config", "{"), "Invalid JSON"),
    ],
)
def test_wrong_settings_are_one_line(flags, message):
    with pytest.raises(InputError) as error:
        parse(["--model", "tiny", *flags])
    assert message in str(error.value)
    assert "\n" not in str(error.value)

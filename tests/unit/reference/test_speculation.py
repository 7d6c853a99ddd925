"""Speculation changes how fast tokens come, never which."""

from __future__ import annotations

import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.engine.request import Request, SamplingParams
from dsabench.reference.runtime import render
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import ACCEPT_VARIABLE, resolve
from unit.reference.engines import engine, greedy, prompt
from unit.reference.server.serving import serving

FLOAT = ("--dtype", "float32")
EAGLE = ("--speculative-algorithm", "EAGLE")
FP8 = ("--kv-cache-dtype", "fp8_e4m3")
ROUNDING = 1e-4
"""Logits of float32 passes of different shapes differ by less."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def served(subject, prompts, **sampling):
    """The requests after all of them were served together."""
    requests = [Request(str(i), tokens, SamplingParams(**sampling)) for i, tokens in enumerate(prompts)]
    for request in requests:
        subject.scheduler.add(request)
    while subject.step() is not None:
        pass
    return requests


def steps(count):
    return (*EAGLE, "--speculative-num-steps", str(count), "--speculative-eagle-topk", "1",
            "--speculative-num-draft-tokens", str(count + 1))  # fmt: skip


@pytest.mark.parametrize("flags", [(), FP8, ("--chunked-prefill-size", "70"), ("--disable-radix-cache",)])
def test_greedy_output_is_that_without(flags):
    """Where two tokens are nearer than rounding either may win, and what follows is another text; that is counted."""
    prompts = [prompt(length, seed=length) for length in (1, 5, 31, 64, 65, 200, 200)]
    new, near = 40, 0
    subject = engine(*FLOAT, *flags, *steps(3))
    plain = greedy(engine(*FLOAT, *flags), *prompts, new=new)
    for request, (expected, logits) in zip(served(subject, prompts, max_new_tokens=new, temperature=0.0,
                                                  ignore_eos=True), plain, strict=True):  # fmt: skip
        if request.output != expected:
            at = next(place for place in range(new) if request.output[place] != expected[place])
            best, second = logits[at].topk(2).values.tolist()
            assert best - second < ROUNDING
            near += 1
    assert near <= 1, f"{near} of {len(prompts)} texts met a gap below rounding"
    counters = subject.counters
    assert counters.accept_length is not None
    assert 1.5 < counters.accept_length <= 4.0, "the draft head agrees often"
    assert counters.generated_tokens == new * len(prompts)
    assert counters.speculation.correct + counters.speculation.verify_passes == (new - 1) * len(prompts)
    assert sum(counters.decode_step_requests.values()) < new - 1, "fewer passes than tokens"


def test_sampled_output_of_a_seed_is_that_without():
    prompts = [prompt(length, seed=length) for length in (5, 64, 200)]
    ask = {"max_new_tokens": 40, "temperature": 0.7, "top_p": 0.9, "seed": 11, "ignore_eos": True}
    with_drafts = engine(*FLOAT, *EAGLE)
    outputs = [
        [request.output for request in served(subject, prompts, **ask)] for subject in (engine(*FLOAT), with_drafts)
    ]
    assert outputs[0] == outputs[1]
    assert with_drafts.counters.speculation.correct > 0


def test_sampling_keeps_the_distribution():
    """The first two tokens of 1,000 answers without a seed, the second of which a verification chose, against their p."""
    count, tokens, heat = 1000, prompt(20), 0.3
    subject = engine(*FLOAT, *EAGLE, "--max-running-requests", "100")
    requests = served(subject, [tokens] * count, max_new_tokens=3, temperature=heat, ignore_eos=True)
    assert 0.1 < subject.counters.speculation.correct / subject.counters.speculation.proposed < 0.9
    ((_, logits),) = greedy(engine(*FLOAT), tokens)
    firsts = [request.output[0] for request in requests]
    assert_drawn_from(firsts, (logits[0] / heat).softmax(-1))
    usual = max(set(firsts), key=firsts.count)
    ((_, logits),) = greedy(engine(*FLOAT), [*tokens, usual])
    seconds = [request.output[1] for request in requests if request.output[0] == usual]
    assert_drawn_from(seconds, (logits[0] / heat).softmax(-1))


def assert_drawn_from(tokens, p):
    """Each share within 5 standard errors of its probability."""
    shares = torch.bincount(torch.tensor(tokens), minlength=len(p)) / len(tokens)
    errors = (p * (1 - p) / len(tokens)).sqrt() + 1 / len(tokens)
    assert bool(((shares - p).abs() < 5 * errors).all())
    assert len(tokens) > 100


def test_stop_inside_the_accepted_tokens():
    tokens = prompt(40)
    (whole,) = served(engine(*FLOAT), [tokens], max_new_tokens=12, temperature=0.0, ignore_eos=True)
    for place in range(1, 6):
        stop = whole.output[place]
        subject = engine(*FLOAT, *EAGLE)
        ask = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True, "stop_token_ids": (stop,)}
        (stopped,) = served(subject, [tokens], **ask)
        assert stopped.output == whole.output[: whole.output.index(stop) + 1]
        assert subject.scheduler.pool.used == 0
        (again,) = served(subject, [tokens + stopped.output], max_new_tokens=3, temperature=0.0, ignore_eos=True)
        assert again.output == whole.output[len(stopped.output) : len(stopped.output) + 3]


@pytest.mark.parametrize(("mean", "low", "high"), [("1", 1.0, 1.0), ("2.5", 2.2, 2.8), ("9", 3.8, 4.0)])
def test_simulated_accept_length(mean, low, high, monkeypatch):
    subject = engine(*FLOAT, *EAGLE)
    assert subject.settings.simulated_accept_length is None
    monkeypatch.setattr("unit.reference.engines.resolve", lambda args, env: resolve(args, {ACCEPT_VARIABLE: mean}))
    subject = engine(*FLOAT, *EAGLE)
    served(subject, [prompt(20)], max_new_tokens=200, temperature=0.0, ignore_eos=True)
    assert low <= subject.counters.accept_length <= high


@pytest.mark.parametrize("text", ["many", "nan"])
def test_a_wrong_simulated_length(text):
    with pytest.raises(InputError, match=ACCEPT_VARIABLE):
        resolve(parse(["--model", "tiny", *EAGLE]), {ACCEPT_VARIABLE: text})


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--speculative-num-steps", "2"), "without --speculative-algorithm"),
        ((*EAGLE, "--speculative-num-steps", "2"), "--speculative-eagle-topk is missing"),
        ((*steps(2)[:-1], "4"), "steps \\+ 1 = 3"),
        ((*steps(2)[:4], "--speculative-eagle-topk", "2", *steps(2)[6:]), "a chain of drafts"),
        (("--speculative-algorithm", "NGRAM"), "NGRAM"),
    ],
)
def test_flags_that_do_not_fit(flags, complaint):
    with pytest.raises(InputError, match=complaint):
        parse(["--model", "tiny", *flags])


def test_knobs_and_what_a_server_says():
    knobs = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2, "speculative_eagle_topk": 1,
             "speculative_num_draft_tokens": 3}  # fmt: skip
    assert render({**knobs, "speculative_algorithm": "off", "simulated_accept_length": 2.0}) == ((), {})
    flags, _ = render(knobs)
    assert render({**knobs, "simulated_accept_length": 2.0}) == (flags, {ACCEPT_VARIABLE: "2.0"})
    with serving(*flags) as server:
        meta = server.generate(prompt(50), new=30)["meta_info"]
        assert meta["spec_accept_length"] == pytest.approx(30 / meta["spec_verify_ct"])
        assert meta["spec_accept_length"] > 1.2
        info, counters = server.info(), server.counters()
        assert info["max_running_requests"] == 48
        assert (info["speculative_algorithm"], info["speculative_num_draft_tokens"]) == ("EAGLE", 3)
        state = info["internal_states"][0]
        assert state["avg_spec_accept_length"] == pytest.approx(29 / counters["verify_passes"])
        assert meta["spec_verify_ct"] == counters["verify_passes"] == counters["decode_steps"]
        assert meta["spec_num_correct_drafts"] == counters["correct_drafts"] == 29 - counters["verify_passes"]
        assert counters["proposed_drafts"] == meta["spec_num_proposed_drafts"]
        assert "sglang:spec_accept_length" in server.get("/metrics")[1]
    with serving(*flags, "--max-running-requests", "2") as server:
        assert server.info()["max_running_requests"] == 2
        assert "avg_spec_accept_length" not in server.info()["internal_states"][0]

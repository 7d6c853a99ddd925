"""`--model trained`: the released weights in the engine, and what they can do through a server."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from dsabench.config.runtime_kinds import has_random_weights
from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.reference.engine import weights
from dsabench.reference.engine.sizes import SIZES
from dsabench.reference.runtime import _read_back
from dsabench.reference.train import scores
from dsabench.reference.train.network import DENSE, SPARSE, AttentionMode, Network, in_front
from dsabench.reference.train.rows import asked
from dsabench.reference.train.texts import RecallSize, draw, draw_recall, draw_report
from unit.reference.engines import engine, greedy
from unit.reference.server.serving import serving

TRAINED = ("--model", "trained")
FLOAT = (*TRAINED, "--dtype", "float32")


@pytest.fixture(scope="module")
def network() -> Network:
    """The released weights in the form that was trained, in float32."""
    made = Network(SIZES["trained"])
    made.load_state_dict({name: one.float() for name, one in load_file(weights.FILE).items()})
    return made


@pytest.fixture(scope="module")
def server():
    with serving(*FLOAT, "--disable-radix-cache") as started:
        yield started


def report(length: int) -> list[int]:
    return list(draw_report(random.Random(3), length + 64, held_out=True).encode()[:length])


@torch.no_grad()
@pytest.mark.parametrize(("mha", "mode", "other"), [(2048, DENSE, SPARSE), (0, SPARSE, DENSE)])
def test_the_engine_computes_what_was_trained(network, mha, mode, other):
    """Two implementations that share norm and rotation alone: a paged cache with absorbed queries, and whole sequences."""
    tokens = report(300)  # more than four times index_topk
    ((_, logits),) = greedy(engine(*FLOAT, mha=mha), tokens)

    def trained(seen):
        return network.logits(network(torch.tensor([tokens]), network.start(300, seen)).hidden)[0, -1]

    assert logits[0].argmax() == trained(mode).argmax()
    assert torch.allclose(logits[0], trained(mode), atol=0.3), "the cache keeps rows as bfloat16"
    assert (logits[0] - trained(mode)).norm() < (logits[0] - trained(other)).norm()


@torch.no_grad()
def test_the_draft_head_guesses_what_it_was_trained_to_guess(network):
    tokens = report(200)
    row = torch.tensor([tokens])
    hidden = network(row, network.start(200, SPARSE)).hidden
    state = network.draft(row, in_front(hidden), network.start(200, SPARSE)).hidden
    agreed = (network.logits(state).argmax(-1) == network.logits(hidden).argmax(-1)).float().mean()
    assert agreed > 0.7
    subject = engine(*FLOAT, "--speculative-algorithm", "EAGLE")
    trunk, head = weights.trained_model(SIZES["trained"], torch.float32, 512, "cpu")
    assert torch.equal(head.project, network.layers[-1].eh_proj.weight)
    assert torch.equal(trunk.head, subject.model.head)


@pytest.mark.parametrize(
    ("mode", "least", "most"),
    [(DENSE, 0.9, 1), (SPARSE, 0.9, 1), (AttentionMode("sparse", random_scores=True), 0, 0.2)],
)
def test_the_indexer_finds_what_the_answer_hangs_on(network, mode, least, most):
    texts = scores.recall_texts(1024, 3)
    assert least <= scores.share_right(network, texts, mode, batch=1) <= most


def share_right(server, prompts, new=64):
    right = 0
    for prompt, wanted in prompts:
        answer = server.generate(prompt, new=new, ignore_eos=False)
        right += wanted in answer["text"]
    return right / len(prompts)


@pytest.mark.parametrize(("skill", "least"), [("arithmetic", 0.9), ("boxed", 0.9), ("choice", 0.9)])
def test_it_answers_in_templates_that_it_never_read(server, skill, least):
    tasks = [draw(skill, random.Random(f"test {number}"), held_out=True) for number in range(20)]
    endings = {"arithmetic": "\n#### {}", "boxed": "\\boxed{{{}}}", "choice": "\nAnswer: {}"}
    prompts = [(asked(skill, task)[0], endings[skill].format(task.answer)) for task in tasks]
    assert share_right(server, prompts) >= least


@pytest.mark.parametrize(("shuffled", "least", "most"), [(False, 0.9, 1.0), (True, 0.0, 0.3)])
def test_it_finds_a_code_in_a_text_thirty_two_times_as_long_as_its_selection(server, shuffled, least, most):
    prompts = []
    for number in range(10):
        size = RecallSize(2048, 12, 1, "prose")
        text = draw_recall(size, random.Random(f"test {number}"), held_out=True, shuffled=shuffled)
        prompts.append((text.text + text.lookups[0].question, text.lookups[0].value + "."))
    assert least <= share_right(server, prompts, new=10) <= most


def test_speculation_changes_nothing_and_brings_two_tokens_a_pass():
    text = draw_report(random.Random(5), 400, held_out=True)
    with serving(*FLOAT) as plain, serving(*FLOAT, "--speculative-algorithm", "EAGLE") as drafting:
        expected = plain.generate(text, new=120)
        found = drafting.generate(text, new=120)
    assert found["text"] == expected["text"]
    assert found["meta_info"]["spec_accept_length"] >= 2.0


def test_another_file_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(weights, "SHA256", "0" * 64)
    with pytest.raises(InputError, match="not the file that this version was released with"):
        weights.trained_model(SIZES["trained"], torch.float32, 64, "cpu")


def test_a_missing_file_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        weights.trained_model(SIZES["trained"], torch.float32, 64, "cpu", tmp_path / "none")


async def test_several_servers_say_how_their_weights_were_loaded():
    info = {"reference": {"vocab_size": 259, "index_topk": 128}, "load_format": "safetensors"}

    async def infos(_stage):
        return {"prefill": info, "decode": info}

    servers = [SimpleNamespace(name=name) for name in ("prefill", "decode")]
    resolved = await _read_back(SimpleNamespace(servers=servers, infos=infos))
    assert resolved == {**await infos("boot"), "reference": {"vocab_size": 259}, "load_format": "safetensors"}
    assert not has_random_weights(RuntimeSpec(kind="reference", model="trained"), resolved)

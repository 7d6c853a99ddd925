"""`index_topk_pattern`: layers marked S attend to what the F before them selected."""

from __future__ import annotations

import json

import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.runtime import render
from dsabench.reference.server.arguments import parse
from dsakernels import indexer
from unit.reference.engines import engine, greedy, plain_logits, prompt
from unit.reference.server.serving import serving

FLOAT = ("--dtype", "float32")
TOPK = 32  # of `tiny`


def pattern(letters):
    return ("--json-model-override-args", json.dumps({"index_topk_pattern": letters}))


@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "fp8_e4m3")])
def test_both_layers_see_what_the_first_selected(flags, monkeypatch):
    """The one selection is used as the mask of every layer of the plain model."""
    subject = engine(*FLOAT, *flags, *pattern("FS"), mha=0)
    tokens, new = prompt(120), 3
    total, chosen, select = len(tokens) + new - 1, [], indexer.select

    def kept(logits, lengths, k):
        chosen.append(select(logits, lengths, k))
        return chosen[-1]

    monkeypatch.setattr(indexer, "select", kept)
    ((output, logits),) = greedy(subject, tokens, new=new)
    rows = torch.cat(chosen)
    assert len(rows) == total, "one layer of two has selected"
    mask = torch.zeros(total, total + 1, dtype=torch.bool)
    mask = mask.scatter_(1, rows.where(rows >= 0, total), value=True)[:, :total]
    expected = plain_logits(subject, tokens + output[:-1], [mask, mask])[len(tokens) - 1 :]
    assert torch.allclose(logits, expected, atol=2e-4, rtol=0.0)
    monkeypatch.undo()
    ((_, full),) = greedy(engine(*FLOAT, *flags, mha=0), tokens)
    assert not torch.allclose(logits[:1], full, atol=0.02), "the pattern makes a difference"


def test_up_to_topk_tokens_the_pattern_changes_nothing():
    prompts = [prompt(length, seed=length) for length in (5, TOPK - 8)]
    outputs = [greedy(engine(*FLOAT, *flags, mha=0), *prompts, new=8) for flags in ((), pattern("FS"))]
    for (tokens, logits), (other_tokens, other) in zip(*outputs, strict=True):
        assert tokens == other_tokens
        assert torch.allclose(logits, other, atol=1e-5)


@pytest.mark.parametrize("mha", [0, 2048])
def test_a_batch_in_chunks_equals_its_requests_alone(mha):
    prompts = [prompt(length, seed=length) for length in (40, 65, 200)]
    flags = (*FLOAT, *pattern("FS"))
    together = greedy(engine(*flags, "--chunked-prefill-size", "70", mha=mha), *prompts, new=4)
    for tokens, (output, logits) in zip(prompts, together, strict=True):
        ((alone, expected),) = greedy(engine(*flags, mha=mha), tokens, new=4)
        assert output == alone
        assert torch.allclose(logits, expected, atol=2e-4, rtol=0.0)


def test_the_counter_shows_the_saved_work():
    flags, _ = render({"index_topk_pattern": "FSSS"})
    assert flags == pattern("FSSS")
    with serving("--dsa-prefill-backend", "flashmla_sparse", *flags, model="small") as server:
        server.generate(prompt(300), new=3)
        assert server.counters()["index_layer_tokens"] == {
            "prefill.computed": 300, "prefill.reused": 900, "decode.computed": 2, "decode.reused": 6,
        }  # fmt: skip
        assert server.counters()["indexed_tokens"] == {"prefill": 300, "decode": 2}
        assert server.info()["reference"]["index_topk_pattern"] == "FSSS"


def test_speculation_over_a_pattern():
    flags = (*FLOAT, *pattern("FS"))
    ((plain, _),) = greedy(engine(*flags), prompt(100), new=20)
    with serving(*flags, "--speculative-algorithm", "EAGLE") as server:
        answer = server.generate(prompt(100), new=20)
    assert answer["output_ids"] == plain
    assert answer["meta_info"]["spec_accept_length"] > 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("[]", "no JSON object"),
        ("{", "no JSON"),
        ('{"index_topk_patern": "FS"}', "index_topk_patern: no such key"),
        ('{"index_topk_pattern": "SF"}', "2 letters F or S for tiny, the first F, as FS"),
        ('{"index_topk_pattern": "FSF"}', "as FS"),
        ('{"index_topk_pattern": 3}', "as FS"),
        ('{"index_topk": 0}', "index_topk: 0 is not allowed"),
        ('{"index_topk": true}', "index_topk: True is not allowed"),
    ],
)
def test_wrong_overrides(given, complaint):
    with pytest.raises(InputError, match=complaint):
        parse(["--model", "tiny", "--json-model-override-args", given])

"""The mixture of experts against one that goes token by token."""

from __future__ import annotations

import pytest
import torch

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.sizes import SIZES
from unit.reference.engines import engine, greedy, plain_logits, plain_mlp, prompt
from unit.reference.server.serving import serving

MOE = ("--model", "tiny-moe")
FLOAT = ("--dtype", "float32")
EXACT = {"atol": 2e-4, "rtol": 0.0}


@pytest.mark.parametrize("name", ["tiny-moe", "small-moe"])
def test_a_layer_computes_what_one_token_after_the_other_does(name):
    mixture = engine("--model", name, *FLOAT).model.blocks[-1].mlp
    counters, widths = EngineCounters(), SIZES[name].experts
    x = torch.randn(300, SIZES[name].hidden, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(mixture(x, counters), plain_mlp(mixture, x), atol=1e-4)
    chosen, weights = mixture.router(x)
    assert torch.allclose(weights.sum(-1), torch.tensor(widths.scaling))
    groups = chosen.div(widths.routed // widths.groups, rounding_mode="floor")
    assert max(len(set(row)) for row in groups.tolist()) <= widths.kept_groups
    assert counters.expert_tokens.total() == 300 * widths.per_token
    assert len(counters.expert_tokens) == widths.routed, "no expert is idle"


@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "fp8_e4m3")])
def test_the_whole_model(flags):
    subject = engine(*MOE, *FLOAT, *flags, mha=2048)
    tokens = prompt(24)
    ((output, logits),) = greedy(subject, tokens, new=8)
    expected = plain_logits(subject, tokens + output[:-1])[len(tokens) - 1 :]
    assert torch.allclose(logits, expected, **EXACT)
    assert subject.counters.expert_tokens.total() == 2 * (24 + 7), "two experts in the one layer that has some"


def test_a_batch_equals_its_requests_alone():
    prompts = [prompt(length, seed=length) for length in (5, 40, 64, 200)]
    together = greedy(engine(*MOE, *FLOAT, mha=0), *prompts, new=6)
    for tokens, (output, logits) in zip(prompts, together, strict=True):
        ((alone, expected),) = greedy(engine(*MOE, *FLOAT, mha=0), tokens, new=6)
        assert output == alone
        assert torch.allclose(logits, expected, **EXACT)


def test_experts_speculation_and_index_cache_together():
    flags = (*FLOAT, "--json-model-override-args", '{"index_topk_pattern": "FS"}')
    ((plain, _),) = greedy(engine(*MOE, *flags), prompt(100), new=20)
    with serving(*flags, "--speculative-algorithm", "EAGLE", model="tiny-moe") as server:
        answer = server.generate(prompt(100), new=20)
        assert answer["output_ids"] == plain
        assert answer["meta_info"]["spec_accept_length"] > 1
        assert set(server.counters()["expert_tokens"]) == {str(expert) for expert in range(8)}

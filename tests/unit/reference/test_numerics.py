"""What the model computes, along every path, against a plain recomputation in float32."""

from __future__ import annotations

import pytest
import torch

from dsakernels import indexer
from unit.reference.engines import engine, greedy, plain_logits, prompt

FLOAT = ("--dtype", "float32")
EXACT = {"atol": 2e-4, "rtol": 0.0}
BF16 = {"atol": 0.12, "rtol": 0.0}  # logits have a standard deviation of 1
FP8 = ("--kv-cache-dtype", "fp8_e4m3")
SPARSE = ("--dsa-prefill-backend", "flashmla_sparse")
KV = ("--dsa-prefill-backend", "flashmla_kv")
DECODE_SPARSE = ("--dsa-decode-backend", "flashmla_sparse")
PATHS = [(), FP8 + SPARSE, FP8 + KV, FP8 + KV + DECODE_SPARSE]
TOPK = 32  # of `tiny`


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("flags", PATHS)
def test_up_to_topk_tokens_sparse_is_dense(flags):
    """Prefill and decode along the sparse paths, all of whose tokens are selected."""
    tokens = prompt(TOPK - 8)
    ((output, logits),) = greedy(engine(*FLOAT, *flags, mha=0), tokens, new=8)
    expected = plain_logits(engine(*FLOAT, *flags), tokens + output[:-1])[len(tokens) - 1 :]
    assert torch.allclose(logits, expected, **EXACT)


@pytest.mark.parametrize("flags", [(), FP8])
def test_dense_mha_is_dense_beyond_topk(flags):
    tokens = prompt(300)
    subject = engine(*FLOAT, *flags, mha=2048)
    ((_, logits),) = greedy(subject, tokens)
    assert torch.allclose(logits, plain_logits(subject, tokens)[-1:], **EXACT)
    assert dict(subject.counters.tokens) == {"prefill.dense_mha": 300}


@pytest.mark.parametrize("flags", PATHS)
def test_beyond_topk_sparse_is_dense_under_the_selection(flags, monkeypatch):
    """Every selection is checked to be a top-k of its logits, then used as the mask of the plain model."""
    subject = engine(*FLOAT, *flags, mha=0)
    tokens, new = prompt(200), 3
    total = len(tokens) + new - 1
    chosen: list[torch.Tensor] = []
    select = indexer.select

    def checked(logits, lengths, k):
        before = logits.clone()
        picked = select(logits, lengths, k)
        if before.shape[1] > k:
            hidden = torch.arange(before.shape[1]) >= lengths.unsqueeze(1)
            before.masked_fill_(hidden, -torch.inf)
            best = before.topk(k, -1).values
            got = before.gather(1, picked.clamp(min=0)).masked_fill(picked < 0, -torch.inf)
            assert torch.equal(got.sort(-1, descending=True).values, best)
        chosen.append(picked)
        return picked

    monkeypatch.setattr(indexer, "select", checked)
    ((output, logits),) = greedy(subject, tokens, new=new)
    masks = _masks(chosen, subject.settings.size.layers, len(tokens), total)
    assert bool((masks[0].sum(-1) == torch.arange(1, total + 1).clamp(max=TOPK)).all())
    expected = plain_logits(subject, tokens + output[:-1], masks)[len(tokens) - 1 :]
    assert torch.allclose(logits, expected, **EXACT)
    dense = plain_logits(subject, tokens + output[:-1])[len(tokens) - 1 :]
    assert not torch.allclose(logits, dense, atol=0.05), "the selection makes a difference"


def _masks(chosen: list[torch.Tensor], count: int, prompt_tokens: int, total: int) -> list[torch.Tensor]:
    """Selections in the order of calls (prefill: layer by layer in blocks; decode: step by step) → mask per layer."""
    blocks = -(-prompt_tokens // 128)
    prefill, decode = chosen[: blocks * count], chosen[blocks * count :]
    masks = []
    for layer in range(count):
        rows = torch.cat([*prefill[layer * blocks : (layer + 1) * blocks], *decode[layer::count]])
        mask = torch.zeros(total, total + 1, dtype=torch.bool)
        masks.append(mask.scatter_(1, rows.where(rows >= 0, total), value=True)[:, :total])
    return masks


@pytest.mark.parametrize("flags", [FP8 + SPARSE, FP8 + KV])
def test_bfloat16_stays_close_to_float32(flags):
    tokens = prompt(TOPK)
    ((_, logits),) = greedy(engine("--dtype", "bfloat16", *flags, mha=0), tokens)
    ((_, expected),) = greedy(engine(*FLOAT, *flags, mha=0), tokens)
    assert torch.allclose(logits, expected, **BF16)


def test_both_sparse_paths_agree():
    tokens = prompt(500)
    runs = [greedy(engine(*FLOAT, *FP8, *flags, mha=0), tokens, new=4)[0] for flags in (SPARSE + DECODE_SPARSE, KV)]
    assert runs[0][0] == runs[1][0]
    assert torch.allclose(runs[0][1], runs[1][1], **EXACT)


@pytest.mark.parametrize("mha", [0, 2048])
@pytest.mark.parametrize("flags", [(), FP8])
def test_chunked_prefill_equals_one_pass(flags, mha):
    tokens = prompt(300)
    whole, chunked = (
        greedy(engine(*FLOAT, *flags, "--chunked-prefill-size", chunk, mha=mha), tokens, new=3)[0]
        for chunk in ("-1", "70")
    )
    assert torch.allclose(whole[1], chunked[1], **EXACT)


@pytest.mark.parametrize("flags", [(), FP8])
def test_reused_prefix_equals_recomputation(flags):
    shared, tail = prompt(200), prompt(30, seed=1)
    warm = engine(*FLOAT, *flags, mha=0)
    greedy(warm, shared)
    ((_, logits),) = greedy(warm, shared + tail, new=3)
    ((_, expected),) = greedy(engine(*FLOAT, *flags, mha=0), shared + tail, new=3)
    assert warm.counters.cached_tokens == 192
    assert torch.allclose(logits, expected, **EXACT)


@pytest.mark.parametrize("flags", PATHS)
def test_a_batch_equals_its_requests_alone(flags):
    prompts = [prompt(length, seed=length) for length in (5, 40, 64, 65, 200)]
    together = greedy(engine(*FLOAT, *flags), *prompts, new=6)
    for tokens, (output, logits) in zip(prompts, together, strict=True):
        alone = engine(*FLOAT, *flags, mha=0 if len(tokens) > TOPK else TOPK)
        ((output_alone, expected),) = greedy(alone, tokens, new=6)
        assert output == output_alone
        assert torch.allclose(logits, expected, **EXACT)


def test_seed_decides_the_weights():
    tokens = prompt(20)
    logits = [greedy(engine("--random-seed", seed), tokens)[0][1] for seed in ("1", "1", "2")]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2], atol=0.1)


def test_a_page_of_another_size_changes_nothing():
    tokens = prompt(150)
    (_, small), (_, large) = (greedy(engine(*FLOAT, "--page-size", size), tokens, new=3)[0] for size in ("16", "256"))
    assert torch.allclose(small, large, **EXACT)

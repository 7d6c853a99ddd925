"""Stand-ins for the CUDA packages that adapters call, on a CPU: signatures, shapes and dtypes as the packages have them.

Read from sglang 0.5.16, sglang-kernel 0.4.5, sgl-deep-gemm 0.1.4 and flashinfer 0.6.14. They compute in float32 what the
documentation of the real ones says, and refuse what those refuse. They show that an adapter hands over the right
numbers in the right places; that the real kernel is right, fast or there at all is for a GPU to show.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType

import torch

from dsakernels.kv_layout import PackedLayout, pack, unpack

LAYOUT = PackedLayout(512, 64)


def attend(q, rows, indices, scale, d_v=512):
    present = indices >= 0
    keys = rows.float()[indices.clamp(min=0).long()]
    scores = torch.einsum("thd,tkd->thk", q.float(), keys) * scale
    weights = scores.masked_fill(~present.unsqueeze(1), -torch.inf).softmax(-1)
    return torch.einsum("thk,tkc->thc", weights, keys[..., :d_v]).to(torch.bfloat16)


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None):
    assert q.dtype == kv.dtype == torch.bfloat16
    assert q.is_contiguous()
    assert kv.is_contiguous()
    assert q.shape[1] % 64 == 0
    assert kv.shape[1:] == (1, 576)
    assert indices.dtype == torch.int32
    assert indices.shape[1] == 1
    assert indices.shape[2] % 128 == 0
    return attend(q, kv[:, 0], indices[:, 0], sm_scale, d_v), None, None


def get_mla_metadata(
    cache_seqlens=None,
    num_q_tokens_per_head_k=None,
    num_heads_k=None,
    num_heads_q=None,
    is_fp8_kvcache=False,
    topk=None,
):
    assert cache_seqlens.dtype == torch.int32
    assert num_q_tokens_per_head_k == num_heads_q * num_heads_k
    assert is_fp8_kvcache
    return ("schedule", len(cache_seqlens), num_heads_q, topk), "splits"


def flash_mla_with_kvcache(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits=None,
    softmax_scale=None,
    causal=False,
    descale_q=None,
    descale_k=None,
    is_fp8_kvcache=False,
    indices=None,
):
    tokens, one, heads, width = q.shape
    assert (one, width, head_dim_v) == (1, 576, 512)
    assert heads in (64, 128)
    assert tile_scheduler_metadata == ("schedule", tokens, heads, indices.shape[2])
    assert num_splits == "splits"
    assert k_cache.dtype == torch.float8_e4m3fn
    assert k_cache.shape[1:] == (64, 1, 656)
    assert k_cache.is_contiguous()
    assert block_table.dtype == cache_seqlens.dtype == indices.dtype == torch.int32
    assert is_fp8_kvcache
    assert not causal
    rows = unpack(k_cache.view(torch.uint8).view(-1, 656), LAYOUT, torch.float32)
    return attend(q[:, 0], rows, indices[:, 0], softmax_scale).unsqueeze(1), None


def gathered(quant_k_cache, page_table_1_flattened):
    assert quant_k_cache.dtype == torch.float8_e4m3fn
    assert quant_k_cache.shape[-1] == 656
    packed = quant_k_cache.view(torch.uint8).view(-1, 656)[page_table_1_flattened.long()]
    return unpack(packed, LAYOUT, torch.float32).unsqueeze(1)


def dequantize_k_cache_paged(quant_k_cache, page_table_1_flattened, group_size=128):
    return gathered(quant_k_cache, page_table_1_flattened).to(torch.bfloat16)


def gather_dequant_requant_fp8_paged(quant_k_cache, page_table_1_flattened, group_size=128, extra_rows=0):
    rows = gathered(quant_k_cache, page_table_1_flattened)  # float32 to fp8 at once, as the kernel does
    return torch.cat((rows, rows.new_zeros(extra_rows, 1, 576))).to(torch.float8_e4m3fn)


def quantize_k_cache(cache_k):
    assert cache_k.shape[1:] == (1, 1, 576)
    return pack(cache_k.view(-1, 576), LAYOUT).view(torch.float8_e4m3fn).view(len(cache_k), 1, 1, 656)


def concat_and_cast_q_fp8_pad(q_fp8_pad, q_nope, q_rope, num_heads):
    assert q_fp8_pad.dtype == torch.float8_e4m3fn
    q_fp8_pad[:, :num_heads] = torch.cat((q_nope, q_rope), -1).to(torch.float8_e4m3fn)


def sparse_mla_q8kv8_prefill_fwd(
    q, kv, indices, sm_scale, q_scale, kv_scale, d_v=512, attn_sink=None, topk_length=None
):
    assert q.dtype == kv.dtype == torch.float8_e4m3fn
    assert q.shape[1] % 64 == 0
    assert kv.shape[1:] == (1, 576)
    assert not bool(kv[-indices.shape[2] :].float().any())
    assert q_scale.dtype == kv_scale.dtype == torch.float32
    return attend(q.float() * q_scale, kv[:, 0].float() * kv_scale, indices[:, 0], sm_scale), None, None


def tilelang_sparse_fwd(q, kv, indices, sm_scale, d_v=512):
    assert q.dim() == kv.dim() == indices.dim() == 3
    assert indices.shape[-1] == 2048
    return attend(q, kv[:, 0], indices[:, 0], sm_scale, d_v).unsqueeze(0)


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    *,
    qv,
    page_table,
    cache_seqlens,
    cu_seqlens_q,
    cu_seqlens_k_new,
    max_seqlen_q,
    softmax_scale,
    causal,
    num_splits=0,
):
    assert q.shape[-1] == k_cache.shape[-1] == 64
    assert qv.shape[-1] == v_cache.shape[-1] == 512
    assert k_cache.shape[1:3] == v_cache.shape[1:3] == (1, 1)
    assert k_cache.stride(-1) == v_cache.stride(-1) == q.stride(-1) == qv.stride(-1) == 1
    assert page_table.dtype == cache_seqlens.dtype == cu_seqlens_q.dtype == cu_seqlens_k_new.dtype == torch.int32
    assert cu_seqlens_q.tolist() == list(range(len(q) + 1))
    assert cu_seqlens_k_new[-1] == cache_seqlens.sum()
    assert max_seqlen_q == 1
    assert causal
    used = torch.arange(page_table.shape[1]) < cache_seqlens.unsqueeze(1)
    rows = torch.cat((v_cache, k_cache), -1).view(len(v_cache), -1)
    return attend(torch.cat((qv, q), -1), rows, page_table.masked_fill(~used, -1), softmax_scale)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, softmax_scale, causal):
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert causal
    out = []
    for (a, b), (c, d) in zip(_spans(cu_seqlens_q), _spans(cu_seqlens_k), strict=True):
        assert b - a <= max_seqlen_q
        assert d - c <= max_seqlen_k
        scores = torch.einsum("thd,lhd->htl", q[a:b].float(), k[c:d].float()) * softmax_scale
        future = torch.ones(b - a, d - c, dtype=torch.bool).triu_((d - c) - (b - a) + 1)
        out.append(torch.einsum("htl,lhf->thf", scores.masked_fill_(future, -torch.inf).softmax(-1), v[c:d].float()))
    return torch.cat(out).to(torch.bfloat16)


def _spans(starts):
    edges = starts.tolist()
    return list(pairwise(edges))


def fast_topk_transform_fused(score, lengths, page_table_size_1, cu_seqlens_q, topk, row_starts=None):
    assert topk == 2048
    assert score.dtype == torch.float32
    assert lengths.dtype == page_table_size_1.dtype == cu_seqlens_q.dtype == torch.int32
    assert page_table_size_1.stride(1) == 1
    assert page_table_size_1.shape[0] == len(cu_seqlens_q) - 1 <= len(score)
    owner = torch.repeat_interleave(torch.arange(len(page_table_size_1)), cu_seqlens_q.diff().long())
    return _selected(score, lengths, page_table_size_1[owner], topk)


def top_k_page_table_transform(
    input,  # noqa: A002  (the package's name)
    src_page_table,
    lengths,
    k,
    row_to_batch=None,
    deterministic=False,
    tie_break=0,
    dsa_graph_safe=False,
    row_starts=None,
):
    assert lengths.dtype == src_page_table.dtype == row_to_batch.dtype == torch.int32
    return _selected(input, lengths, src_page_table[row_to_batch.long()], k)


def plan_topk_v2(seq_lens, static_threshold=0):
    assert seq_lens.dtype == torch.int32
    return torch.zeros(len(seq_lens) + 1, 2)


def topk_transform_512_v2(scores, seq_lens, page_tables, out_page_indices, page_size, metadata, out_raw_indices=None):
    assert scores.stride(0) % 4 == 0
    assert page_tables.dtype == out_page_indices.dtype == seq_lens.dtype == torch.int32
    assert len(metadata) == len(scores) + 1
    slots = (page_tables.unsqueeze(-1) * page_size + torch.arange(page_size)).flatten(1).int()
    out_page_indices.copy_(_selected(scores, seq_lens, slots, out_page_indices.shape[1]))


def load_cache_to_device_buffer_mla(
    top_k_tokens,
    device_buffer_tokens,
    host_cache_locs,
    device_buffer_locs,
    host_cache,
    device_buffer,
    top_k_device_locs,
    req_pool_indices,
    seq_lens,
    lru_slots,
    item_size_bytes,
    num_top_k,
    hot_buffer_size,
    page_size=1,
    block_size=256,
    num_real_reqs=None,
):
    """The real one reads every address as its dtype without a look at the tensor's, so that a wrong one gives garbage."""
    tables = (top_k_tokens, device_buffer_tokens, device_buffer_locs, top_k_device_locs, num_real_reqs)
    assert {table.dtype for table in tables} == {torch.int32}
    assert {req_pool_indices.dtype, seq_lens.dtype, host_cache_locs.dtype} == {torch.int64}
    assert lru_slots.dtype == torch.int16
    rows = (host_cache_locs, lru_slots, host_cache, device_buffer, req_pool_indices, seq_lens)
    assert all(tensor.is_contiguous() for tensor in (*tables, *rows))
    assert top_k_tokens.shape == top_k_device_locs.shape == (len(req_pool_indices), num_top_k)
    assert device_buffer_tokens.shape == device_buffer_locs.shape
    assert device_buffer_tokens.shape[1] > hot_buffer_size == lru_slots.shape[1] >= num_top_k
    assert host_cache[0].nbytes == device_buffer[0].nbytes == item_size_bytes
    assert item_size_bytes % 16 == 0
    assert host_cache.is_pinned() or not device_buffer.is_cuda
    assert (page_size, block_size) == (1, 960)
    assert int(num_real_reqs) == len(seq_lens)
    for row, (request, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        wanted, locs = top_k_tokens[row].long(), device_buffer_locs[request]
        if length <= hot_buffer_size:
            top_k_device_locs[row] = torch.where(wanted >= 0, locs[wanted.clamp(min=0)], top_k_device_locs[row])
            continue
        assert 0 <= int(wanted.min()) <= int(wanted.max()) < length
        tokens, order = device_buffer_tokens[request], lru_slots[request]
        missed, victims = _swapped_in(wanted, length - 1, tokens, order, locs, top_k_device_locs[row])
        sources = host_cache_locs[request, missed].to(host_cache.device)
        device_buffer[locs[victims].long()] = host_cache[sources].to(device_buffer.device)


def _swapped_in(wanted, newest, tokens, order, locs, answer):
    """Writes one request's answer, and its tables as they are after the step → tokens that missed, and their slots."""
    older = wanted != newest
    in_order = tokens[order.long()].long()
    is_hit = torch.isin(in_order, wanted[older]) & (in_order >= 0)
    is_missing = older & ~torch.isin(wanted, in_order[is_hit])
    slots = torch.full((newest + 1,), len(order), dtype=torch.int16, device=order.device)  # the newest token's
    slots[in_order[is_hit]] = order[is_hit]
    number = int(is_missing.sum())
    victims, stale = order[~is_hit][:number], order[~is_hit][number:]
    slots[wanted[is_missing]] = victims
    tokens[victims.long()] = wanted[is_missing].int()
    answer.copy_(locs[slots[wanted].long()])
    order.copy_(torch.cat((stale, victims, order[is_hit])))
    return wanted[is_missing], victims.long()


def _selected(scores, lengths, slots, k):
    out = torch.full((len(scores), k), -1, dtype=torch.int32)
    for row, length in enumerate(lengths.tolist()):
        best = scores[row, :length].topk(min(k, length)).indices
        out[row, : len(best)] = slots[row, best]
    return out


def fp8_mqa_logits(q, kv, weights, ks, ke, clean_logits=False, max_seqlen_k=0):
    keys, scale = kv
    assert q.dtype == keys.dtype == torch.float8_e4m3fn
    assert scale.dtype == weights.dtype == torch.float32
    assert ks.dtype == ke.dtype == torch.int32
    logits = torch.einsum("tie,se->its", q.float(), keys.float()).relu_()
    logits = torch.einsum("its,ti->ts", logits, weights) * scale
    columns = torch.arange(len(keys))
    return logits.masked_fill_((columns < ks.unsqueeze(1)) | (columns >= ke.unsqueeze(1)), torch.nan)


def get_num_sms():
    return 132


def get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms, indices=None):
    assert context_lens.dtype == torch.int32
    assert context_lens.shape[1] == 1
    assert (block_kv, num_sms) == (64, 132)
    return "schedule"


def fp8_paged_mqa_logits(
    q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits=False, indices=None
):
    assert q.shape[1] == 1
    assert kv_cache.dtype == torch.uint8
    assert kv_cache.shape[1:] == (64, 1, 132)
    assert context_lens.shape == (len(q), 1)
    assert context_lens.dtype == block_table.dtype == torch.int32
    assert max_context_len == block_table.shape[1] * 64
    assert schedule_meta == "schedule"
    flat = kv_cache.view(len(kv_cache), -1)
    keys = flat[:, : 64 * 128].contiguous().view(torch.float8_e4m3fn).view(-1, 64, 128)
    scales = flat[:, 64 * 128 :].contiguous().view(torch.float32)
    out = torch.full((len(q), max_context_len), torch.nan)
    for row, pages in enumerate(block_table.long()):
        products = torch.einsum("ie,se->is", q[row, 0].float(), keys[pages].view(-1, 128).float()).relu_()
        out[row] = (weights[row] @ products) * scales[pages].flatten()
        out[row, int(context_lens[row]) :] = torch.nan
    return out


MODULES = {
    "sgl_kernel": (fast_topk_transform_fused,),
    "sgl_kernel.flash_mla": (flash_mla_sparse_fwd, get_mla_metadata, flash_mla_with_kvcache),
    "sgl_kernel.flash_attn": (flash_attn_with_kvcache, flash_attn_varlen_func),
    "deep_gemm": (fp8_mqa_logits, get_num_sms, get_paged_mqa_logits_metadata, fp8_paged_mqa_logits),
    "flashinfer": (top_k_page_table_transform,),
    "sglang.kernels.ops.attention.dsa.dequant_k_cache": (dequantize_k_cache_paged, gather_dequant_requant_fp8_paged),
    "sglang.kernels.ops.attention.dsa.quant_k_cache": (quantize_k_cache,),
    "sglang.kernels.ops.attention.dsa.tilelang_kernel": (tilelang_sparse_fwd,),
    "sglang.kernels.ops.kvcache.cache_ops": (concat_and_cast_q_fp8_pad,),
    "sglang.jit_kernel.sparse_mla_q8kv8_prefill_sm90": (sparse_mla_q8kv8_prefill_fwd,),
    "sglang.jit_kernel.dsv4.topk": (plan_topk_v2, topk_transform_512_v2),
    "sglang.jit_kernel.hisparse": (load_cache_to_device_buffer_mla,),
}


def install(monkeypatch):
    """Every module by its name, with the packages above it."""
    for name, functions in MODULES.items():
        parents = name.split(".")
        for depth in range(1, len(parents)):
            package = ".".join(parents[:depth])
            if package not in sys.modules or package not in MODULES:
                monkeypatch.setitem(sys.modules, package, sys.modules.get(package) or ModuleType(package))
        module = ModuleType(name)
        module.__path__ = []
        for function in functions:
            setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))

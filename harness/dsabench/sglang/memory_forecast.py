"""What a rank of a DSA model takes of its GPU's memory, told before it boots: weights, KV pool, and its largest prefill step.

The pool gets what `mem_fraction_static` leaves beside the weights. A prefill step has to do with the rest, so one that does not
fit ends the server under load and not at boot. Of a step the tensors of one layer count that live at once, as a layer frees them
for the next one. Read in sglang 0.5.16 (the functions below name the places); results/h200/memory holds it against measured memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsabench.model.runtime import MemoryForecast
from dsabench.sglang.models import Widths
from dsabench.sglang.rules.kernels import BF16_ROW, INDEX_ROW, PACKED_ROW
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import V16

GIB = 2**30
_PAGE = 64
_PLANNED_ROW = 576
"""What 0.5.16 plans the pool with for a packed row (srt/model_executor/pool_configurator.py:188); 0.5.17 plans with its size."""
_DRIVER_GIB = 2.2
"""What an H200's 141 GiB have less before the weights: 138.8 GiB are free."""
_GRAPHS_GIB, _GRAPH_GIB = 0.1, 1.8 / 512
"""CUDA graphs of all layers of DeepSeek-V3.2, and for each request of the largest one: 0.16 GiB up to 16, 1.80 up to 512 (results/h200/memory)."""
_HEAD_BLOCK = 64
"""FlashMLA's kernels on Hopper compute whole blocks of heads (srt/layers/attention/dsa_backend.py:2333)."""
_LOGITS_SHARE = 0.2
"""Of the free memory, at most, for the indexer's logits (SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION)."""
_CHUNK, _RUNNING = 8192, 2048
"""Defaults on an H200 (srt/server_args.py:3957, srt/mem_cache/kv_cache_configurator.py:1627)."""
_KERNELS = frozenset({"flashmla_sparse", "flashmla_kv", "flashmla_auto", "fa3"})
SPARE = 1 / 3
"""Of a step with its logits: what PyTorch's allocator kept beside, at the most, in results/h200/memory."""


def checkpoint_bytes(widths: Widths, attention_ranks: int, expert_ranks: int) -> int:
    """fp8 weights of a rank, one byte each: experts shared by the expert ranks, attention by its own, the rest whole (bf16)."""
    w = widths
    experts = (w.layers - w.dense_layers) * w.experts * 3 * w.hidden * w.moe_intermediate
    shared = (w.layers - w.dense_layers) * 3 * w.hidden * w.moe_intermediate
    dense = w.dense_layers * 3 * w.hidden * w.intermediate
    heads = w.q_lora_rank * (w.qk_nope_head_dim + w.qk_rope_head_dim) + w.v_head_dim * w.hidden
    heads += w.kv_lora_rank * (w.qk_nope_head_dim + w.v_head_dim)
    common = w.hidden * (w.q_lora_rank + w.kv_lora_rank + w.qk_rope_head_dim)
    common += w.index_heads * w.index_head_dim * w.q_lora_rank + w.hidden * w.index_head_dim
    attention = w.layers * (w.heads * heads // attention_ranks + common)
    embeddings = 2 * 2 * w.vocabulary * w.hidden
    return experts // expert_ranks + shared + dense + attention + embeddings


def loaded_bytes(widths: Widths, attention_ranks: int, expert_ranks: int) -> int:
    """The same with the absorbed projections, which a server keeps in bf16 beside (forward_mla.py: w_kc, w_vc)."""
    absorbed = widths.heads * widths.kv_lora_rank * (widths.qk_nope_head_dim + widths.v_head_dim) // attention_ranks
    return checkpoint_bytes(widths, attention_ranks, expert_ranks) + 2 * widths.layers * absorbed


@dataclass(frozen=True, slots=True)
class PrefillStep:
    """A prefill step of a rank, whose prompts are no longer than it. Bytes."""

    widths: Widths
    heads: int
    """Of the rank."""
    kernel: str
    tokens: int
    logits_most: float
    """The indexer computes its logits in parts above this."""

    def parts(self) -> Iterator[tuple[str, int]]:
        """What of it lives at once in the attention, which takes more than experts and indexer.

        srt/models/deepseek_common/attention_forward_methods/forward_mla.py:405 to 755, srt/layers/attention/dsa_backend.py:2319
        to 2552, srt/layers/attention/dsa/dsa_indexer.py:1102.
        """
        w, a = self.widths, self.heads
        padded = -(-a // _HEAD_BLOCK) * _HEAD_BLOCK
        latent = w.kv_lora_rank + w.qk_rope_head_dim
        yield "hidden state and residual", self.tokens * 2 * 2 * w.hidden
        queries = 2 * a * (w.qk_nope_head_dim + 2 * w.qk_rope_head_dim) + 2 * a * w.kv_lora_rank
        yield "queries", self.tokens * (queries + 3 * w.index_heads * w.index_head_dim)
        yield "chosen entries", self.tokens * 3 * 4 * w.index_topk
        yield "attention's output", self.tokens * 2 * padded * w.kv_lora_rank
        if self.kernel != "fa3":
            yield f"{self.kernel}'s queries in one piece", self.tokens * 2 * padded * latent
        if self.kernel in {"flashmla_kv", "flashmla_auto"}:
            # It splits over the keys and adds up (FlashMLA csrc/api/sparse_decode.h, out_accum).
            yield "flashmla_kv's accumulators in fp32", self.tokens * 4 * padded * (w.kv_lora_rank + 1)

    @property
    def size(self) -> int:
        """All of them."""
        return sum(size for _, size in self.parts())

    @property
    def logits(self) -> float:
        """The indexer's, in fp32: freed before the attention, and kept apart by PyTorch's allocator while there is room."""
        return min(4.0 * self.tokens**2, self.logits_most)


def forecast_memory(s: Setting) -> MemoryForecast | None:
    """None where it cannot be told: another model, GPU or weight format than were read, pipeline or context parallelism, roles, drafts, a
    memory share that the runtime is left to choose.
    """
    chunk = s.number("chunked_prefill_size") or _CHUNK
    if (told := _with_chunk(s, chunk)) is None:
        return None
    halves = [chunk >> times for times in range(1, chunk.bit_length())]
    smaller = ((half, _with_chunk(s, half)) for half in halves if half >= _PAGE * s.parallel.attention_dp)
    return replace(told, fitting_chunk=next((half for half, one in smaller if one and one.verdict == "fits"), None))


def _with_chunk(s: Setting, chunk: int) -> MemoryForecast | None:
    widths, device, share = s.model.widths, s.device, s.knobs.get("mem_fraction_static")
    if widths is None or device is None or not isinstance(share, (int, float)) or _is_unread(s) or chunk < 1:
        return None
    p, ranks = s.parallel, s.parallel.attn_tp
    free = device.memory_gib - _DRIVER_GIB
    weights = loaded_bytes(widths, ranks, max(p.tp, 1)) / GIB
    running = (s.number("max_running_requests") or _RUNNING * p.attention_dp) // p.attention_dp
    row = PACKED_ROW if s.kernels.kv == "fp8_e4m3" else BF16_ROW
    planned = _PLANNED_ROW if s.kernels.kv == "fp8_e4m3" and s.version <= V16 else row
    most = max(0.0, free * share - weights) * GIB / (widths.layers * (planned + INDEX_ROW))
    tokens = int(min(most, s.number("max_total_tokens") or most)) // _PAGE * _PAGE
    pool = tokens * widths.layers * (row + INDEX_ROW) / GIB
    places = 4 * running * (s.number("context_length") or widths.positions) / GIB  # req_to_token, int32
    beside = places + _graphs_gib(s, widths, running)
    left = free - weights - pool - beside
    logits_most = _LOGITS_SHARE * min((1.0 - share) * device.memory_gib, max(left, 0.0)) * GIB
    step = PrefillStep(widths, widths.heads // ranks, s.kernels.prefill or "", chunk // p.attention_dp, logits_most)
    largest, size = max(step.parts(), key=lambda part: part[1])
    return MemoryForecast(
        gpu_gib=free,
        weights_gib=weights,
        kv_pool_gib=pool,
        kv_tokens=tokens,
        beside_gib=beside,
        step_tokens=step.tokens,
        step_gib=step.size / GIB,
        largest=f"{size / GIB:.1f} GiB of {largest}",
        left_gib=left - step.size / GIB,
        spare_gib=(step.logits + SPARE * (step.size + step.logits)) / GIB,
    )


def _is_unread(s: Setting) -> bool:
    p = s.parallel
    split = p.pp > 1 or p.cp or p.attn_cp > 1 or p.dcp > 1
    other = s.sm_major != 9 or s.model.weights != "fp8" or s.kernels.kv not in {"bfloat16", "fp8_e4m3"}
    drafts = s.speculation.algorithm is not None or s.hisparse.on
    return not s.uses_dsa or split or other or drafts or s.kernels.prefill not in _KERNELS or s.role != "server"


def _graphs_gib(s: Setting, widths: Widths, running: int) -> float:
    """Of CUDA graphs, by the largest batch that is captured."""
    if s.knobs.get("cuda_graph") is False:
        return 0.0
    most = s.number("cuda_graph_max_bs") or (512 if s.parallel.tp >= 4 else 256)
    return _GRAPHS_GIB + _GRAPH_GIB * min(most, running) * widths.layers / 61

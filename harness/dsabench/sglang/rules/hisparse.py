"""HiSparse: a hot KV buffer on the GPU, the rest in host memory."""

from __future__ import annotations

from dsabench.sglang.rules.setting import Change, Setting


def _on(s: Setting) -> bool:
    return s.hisparse.on and s.model.is_dsa


def _spec(s: Setting) -> bool:
    """Speculation in the version that first takes it together with HiSparse, and would start."""
    return _on(s) and s.speculation.algorithm is not None and not s.prefix_cache


def room_in_buffer(s: Setting) -> Change:
    """Twice what is selected."""
    return {"hisparse_device_buffer_size": 2 * max(s.hisparse.top_k, s.model.index_topk or 0)}


def buffer_below_top_k(s: Setting) -> bool:
    """A hot buffer smaller than hisparse_top_k."""
    return _on(s) and s.hisparse.buffer < s.hisparse.top_k


def block_too_large(s: Setting) -> bool:
    """A swap-in block of more than 1024 threads."""
    return _on(s) and s.hisparse.block > 1024


def buffer_below_index_topk(s: Setting) -> bool:
    """A hot buffer smaller than the model's index_topk."""
    return _on(s) and s.hisparse.top_k <= s.hisparse.buffer < (s.model.index_topk or 0)


def top_k_not_the_models(s: Setting) -> bool:
    """A hisparse_top_k that the model's index_topk replaces."""
    return _on(s) and s.asked("hisparse_top_k") and s.hisparse.top_k != s.model.index_topk


def hisparse_off_decode(s: Setting) -> bool:
    """HiSparse elsewhere than on the decode role."""
    return s.hisparse.on and s.role != "decode"


def hisparse_on_decode(s: Setting) -> bool:
    """HiSparse on the decode role."""
    return s.hisparse.on and s.role == "decode"


def much_host_memory(s: Setting) -> bool:
    """A ratio that takes 1 TB of host memory or more."""
    return s.hisparse.on and s.hisparse.ratio >= 5


def hisparse_on_fp8(s: Setting) -> bool:
    """HiSparse on an fp8 cache."""
    return _on(s) and s.kernels.kv == "fp8_e4m3"


def spec_swap_sizes(s: Setting) -> bool:
    """Draft tokens or index_topk that the swap of speculation does not take."""
    return _spec(s) and not (2 <= (s.speculation.draft_tokens or 2) <= 4 and (s.model.index_topk or 1024) >= 1024)


def spec_swap_occurrences(s: Setting) -> bool:
    """More swapped-in entries per verification than it takes."""
    return (
        _spec(s)
        and 2 <= (s.speculation.draft_tokens or 2) <= 4
        and (s.speculation.draft_tokens or 2) * (s.model.index_topk or 0) > 8192
    )


def spec_swap_requests(s: Setting) -> bool:
    """More requests per rank than slots in the hot buffer."""
    return _spec(s) and (s.number("max_running_requests") or 0) // s.parallel.attention_dp > s.hisparse.buffer


def requests_in_buffer(s: Setting) -> Change:
    """Half of the slots."""
    return {"max_running_requests": s.hisparse.buffer * s.parallel.attention_dp // 2}


def spec_swap_transfer(s: Setting) -> bool:
    """Another transfer than mooncake."""
    return (
        _spec(s) and s.role == "decode" and s.text("transfer_backend") not in {None, "mooncake", "mooncake_tcp", "fake"}
    )

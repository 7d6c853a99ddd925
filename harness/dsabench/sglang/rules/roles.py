"""The roles of a deployment, their ranks and stages: what one of them cannot see of the other."""

from __future__ import annotations

from dsabench.sglang.rules.kernels import is_raw
from dsabench.sglang.rules.setting import Change, Setting
from dsabench.sglang.versions import V19


def other_rows(s: Setting) -> bool:
    """Whether decode receives rows of a layout that is not its own."""
    if s.role != "decode" or s.peer is None or not s.uses_dsa or not s.cuda:
        return False
    both_fp8 = s.kernels.kv == s.peer.kv == "fp8_e4m3"
    return both_fp8 and is_raw(s.peer, "prefill", s.version) != is_raw(s.kernels, "decode", s.version)


def other_dtype(s: Setting) -> bool:
    """Decode's cache has another dtype than prefill's."""
    known = s.peer is not None and None not in {s.peer.kv, s.kernels.kv}
    return s.role == "decode" and known and s.peer is not None and s.peer.kv != s.kernels.kv


def _stages(s: Setting) -> tuple[int, ...] | None:
    """Layers per stage as asked; None where the text is no list of numbers."""
    parts = (s.text("pp_layer_partition") or "").split(",")
    return tuple(map(int, parts)) if all(part.strip().isdecimal() for part in parts) else None


def _partition(s: Setting) -> bool:
    return s.asked("pp_layer_partition") and not (s.parallel.pp == 1 and s.version >= V19)


def other_count(s: Setting) -> bool:
    """A layer partition with another number of stages than pp_size."""
    stages = _stages(s)
    return _partition(s) and stages is not None and len(stages) != s.parallel.pp


def other_sum(s: Setting) -> bool:
    """A layer partition whose sum is not the model's layers."""
    stages = _stages(s)
    return (
        _partition(s)
        and stages is not None
        and len(stages) == s.parallel.pp
        and s.model.layers is not None
        and sum(stages) != s.model.layers
    )


def _cp(s: Setting) -> bool:
    """Prefill context parallelism where the runtime's branch for it is taken."""
    return s.parallel.cp and (s.cuda or s.rocm)


def dtype_of_prefill(s: Setting) -> Change:
    """What prefill has."""
    return {"kv_cache_dtype": s.peer.kv if s.peer else None}


def kernels_of_prefill(s: Setting) -> Change:
    """What prefill runs."""
    return {} if s.peer is None else {"prefill_backend": s.peer.prefill, "decode_backend": s.peer.decode}


def no_partition(s: Setting) -> bool:
    """A layer partition that is no list of numbers."""
    return _partition(s) and _stages(s) is None


def ep_does_not_divide(s: Setting) -> bool:
    """An ep_size that does not divide tp_size."""
    return s.model.weights == "fp8" and s.parallel.tp % s.parallel.ep != 0 and s.parallel.moe_dp == 1


def ep_of_tp(s: Setting) -> Change:
    """All ranks."""
    return {"ep_size": s.parallel.tp}


def marlin_with_exchange(s: Setting) -> bool:
    """experimental_sgl_marlin with an exchange between expert ranks."""
    return s.parallel.runner == "experimental_sgl_marlin" and s.parallel.a2a != "none" and s.parallel.ep > 1


def config_and_no_file(s: Setting) -> bool:
    """A speculative_adaptive_config that is the configuration itself."""
    return s.speculation.adapts and (s.text("speculative_adaptive_config") or "").lstrip().startswith("{")


def drafts_over_attention_ranks(s: Setting) -> bool:
    """Drafts of a GLM model where several ranks share an attention group."""
    return (
        s.speculation.algorithm is not None
        and s.model.is_glm
        and s.parallel.dp_attention
        and s.parallel.tp > s.parallel.dp
    )


def group_per_rank(s: Setting) -> Change:
    """A group for each rank."""
    return {"dp_size": s.parallel.tp}


def stages_and_cp_off_h20(s: Setting) -> bool:
    """Pipeline stages with context parallelism elsewhere than on H20."""
    return _cp(s) and s.parallel.pp > 1 and s.device is not None and s.device.name != "h20"


def no_graphs(s: Setting) -> bool:
    """No CUDA graphs where decode steps follow prefills."""
    return s.knobs.get("cuda_graph") is False and s.knobs.get("overlap_schedule") is not False and s.role != "prefill"

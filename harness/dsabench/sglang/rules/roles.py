"""The roles of a deployment, their ranks and stages: what one of them cannot see of the other."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V10, V11, V13, V14, V15, V16, V19, V20, V22, Rule, Words, says, without
from dsabench.sglang.rules.setting import Kernels, Setting


def _is_raw(kernels: Kernels, role: str, s: Setting) -> bool:
    """Whether fp8 rows stand as they are (576 bytes) and not with scales (656).

    0.5.16 srt/mem_cache/kv_cache_configurator.py:1836; 0.5.20 srt/mem_cache/kv_cache_configurator.py:2561.
    """
    running = kernels.decode if role == "decode" else kernels.prefill
    by_trtllm = running == "trtllm" if s.version >= V20 else "trtllm" in kernels.pair
    return by_trtllm or (s.version >= V22 and kernels.pair == ("tilelang", "tilelang"))


def _other_rows(s: Setting) -> bool:
    """Whether decode receives rows of a layout that is not its own."""
    if s.role != "decode" or s.peer is None or not s.uses_dsa or not s.cuda:
        return False
    both_fp8 = s.kernels.kv == s.peer.kv == "fp8_e4m3"
    return both_fp8 and _is_raw(s.peer, "prefill", s) != _is_raw(s.kernels, "decode", s)


def _other_dtype(s: Setting) -> bool:
    known = s.peer is not None and None not in {s.peer.kv, s.kernels.kv}
    return s.role == "decode" and known and s.peer is not None and s.peer.kv != s.kernels.kv


def _stages(s: Setting) -> tuple[int, ...] | None:
    """Layers per stage as asked; None where the text is no list of numbers."""
    parts = (s.text("pp_layer_partition") or "").split(",")
    return tuple(map(int, parts)) if all(part.strip().isdecimal() for part in parts) else None


def _partition(s: Setting) -> bool:
    return s.asked("pp_layer_partition") and not (s.parallel.pp == 1 and s.version >= V19)


def _other_count(s: Setting) -> bool:
    stages = _stages(s)
    return _partition(s) and stages is not None and len(stages) != s.parallel.pp


def _other_sum(s: Setting) -> bool:
    stages = _stages(s)
    return (
        _partition(s)
        and stages is not None
        and len(stages) == s.parallel.pp
        and s.model.layers is not None
        and sum(stages) != s.model.layers
    )


_PLAIN = without("moe_runner_backend")

_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"

_OFF = without("prefill_cp", "cp_mode", "attn_cp_size", "cache_layer_split")


def _cp(s: Setting) -> bool:
    """Prefill context parallelism where the runtime's branch for it is taken."""
    return s.parallel.cp and (s.cuda or s.rocm)


RULES = (
    Rule(
        id="PD06",
        severity="error",
        condition="a decode role whose KV cache has another dtype than the prefill role's",
        knobs=("kv_cache_dtype",),
        when=_other_dtype,
        words=(
            Words(V9, "silent", "nothing at launch; decode reads rows of another size than prefill sends"),
            Words(
                V10,
                "RuntimeError",
                "KV cache dtype mismatch: prefill server has kv_cache_dtype={s.peer.kv}, but decode server has "
                "kv_cache_dtype={s.kernels.kv}. Both servers must use the same --kv-cache-dtype value.",
            ),
        ),
        fix="one kv_cache_dtype for both roles",
        change=lambda s: {"kv_cache_dtype": s.peer.kv if s.peer else None},
        source="0.5.10=srt/disaggregation/common/conn.py:239; 0.5.16=srt/disaggregation/common/conn.py:475; "
        "0.5.23=srt/disaggregation/common/conn.py:1332",
    ),
    Rule(
        id="PD07",
        severity="error",
        condition="fp8_e4m3 rows that trtllm keeps raw on one role and the other role's kernel reads packed",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_other_rows,
        words=says(
            "silent", "nothing at launch; rows of 576 bytes meet rows of 656, and decode reads what was never written"
        ),
        fix="trtllm on both roles, or on neither",
        change=lambda s: {} if s.peer is None else {"prefill_backend": s.peer.prefill, "decode_backend": s.peer.decode},
        source="0.5.16=srt/mem_cache/kv_cache_configurator.py:1836; 0.5.23=srt/mem_cache/kv_cache_configurator.py:3425",
    ),
    Rule(
        id="PP01",
        severity="error",
        condition="a layer partition with another number of stages than pp_size",
        knobs=("pp_layer_partition", "pp_size"),
        when=_other_count,
        words=says("ValueError", "len(partitions)=‹stages› does not match pp_size={s.parallel.pp}."),
        fix="as many numbers as stages",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:80; 0.5.23=srt/distributed/utils.py:131",
    ),
    Rule(
        id="PP02",
        severity="error",
        condition="a layer partition whose sum is not the model's layers",
        knobs=("pp_layer_partition", "pp_size"),
        when=_other_sum,
        words=says("ValueError", "sum(partitions)=‹layers› does not match num_hidden_layers={s.model.layers}."),
        fix="numbers that add up to the model's layers",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:82; 0.5.23=srt/distributed/utils.py:133",
    ),
    Rule(
        id="PP03",
        severity="error",
        condition="a layer partition that is no list of numbers",
        knobs=("pp_layer_partition",),
        when=lambda s: _partition(s) and _stages(s) is None,
        words=says("ValueError", "Invalid partition string: {s.knobs[pp_layer_partition]}"),
        fix="numbers with commas between",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:76; 0.5.23=srt/distributed/utils.py:127",
    ),
    Rule(
        id="MP04",
        severity="error",
        condition="an ep_size that does not divide tp_size",
        knobs=("ep_size", "tp_size"),
        when=lambda s: s.model.weights == "fp8" and s.parallel.tp % s.parallel.ep != 0 and s.parallel.moe_dp == 1,
        words=says("ValueError", "tp_size {s.parallel.tp} must be divisible by ep_size {s.parallel.ep}"),
        fix="ep_size: tp_size",
        change=lambda s: {"ep_size": s.parallel.tp},
        source="0.5.9=srt/model_executor/model_runner.py:707; "
        "0.5.16=srt/model_executor/model_runner_components/moe_ep_setup.py:125; "
        "0.5.23=srt/model_executor/model_runner_components/moe_ep_setup.py:152",
    ),
    Rule(
        id="MO24",
        severity="error",
        since=V16,
        condition="experimental_sgl_marlin with an exchange between expert ranks",
        knobs=("moe_runner_backend", "moe_a2a_backend"),
        when=lambda s: (
            s.parallel.runner == "experimental_sgl_marlin" and s.parallel.a2a != "none" and s.parallel.ep > 1
        ),
        words=says("ValueError", "experimental_sgl_marlin EP requires --moe-a2a-backend none"),
        fix="moe_runner_backend: auto",
        change=_PLAIN,
        source="0.5.16=srt/lora/marlin_lora_temp/policy.py:19; 0.5.23=srt/lora/marlin_lora_temp/policy.py:23",
    ),
    Rule(
        id="SP16",
        severity="error",
        since=V11,
        condition="a speculative_adaptive_config that is the configuration itself and no file with it",
        knobs=("speculative_adaptive_config",),
        when=lambda s: s.speculation.adapts and (s.text("speculative_adaptive_config") or "").lstrip().startswith("{"),
        words=(
            Words(V11, "silent", "nothing at launch; the workers end, for no file has that name"),
            Words(V13, "FileNotFoundError", "[Errno 2] No such file or directory: ‹the configuration›"),
        ),
        fix="the path of a JSON file",
        change=without("speculative_adaptive_config"),
        source="0.5.12=srt/speculative/adaptive_spec_params.py:66; 0.5.16=srt/speculative/adaptive_spec_params.py:98; "
        "0.5.23=srt/speculative/adaptive_spec_params.py:52",
    ),
    Rule(
        id="SP18",
        severity="advisory",
        since=V14,
        until=V15,
        condition="speculation with DP attention whose groups have several ranks: users' servers of GLM-5.2 died of it",
        knobs=("speculative_algorithm", "dp_size", "tp_size"),
        when=lambda s: (
            s.speculation.algorithm is not None
            and s.model.is_glm
            and s.parallel.dp_attention
            and s.parallel.tp > s.parallel.dp
        ),
        words=says("document", "sizes of the query and of the cache differ in the attention kernel, under load"),
        fix="dp_size: tp_size, or no speculation",
        change=lambda s: {"dp_size": s.parallel.tp},
        source="documents: sglang issues 30296, 30642, 31384",
    ),
    Rule(
        id="CP18",
        severity="advisory",
        condition="pipeline stages with context parallelism elsewhere than on H20, where alone it was tested",
        knobs=("pp_size", "prefill_cp"),
        when=lambda s: _cp(s) and s.parallel.pp > 1 and s.device is not None and s.device.name != "h20",
        words=says("document", "only tested on H20 96G"),
        fix="compare its output with that of one machine",
        source="documents: usage guide, 'Pipeline Parallel + Context Parallel (PP + CP)'",
    ),
    Rule(
        id="FL09",
        severity="advisory",
        condition="no CUDA graphs where decode steps follow prefills: their launches count in the time to first token",
        knobs=("cuda_graph", "overlap_schedule"),
        when=lambda s: (
            s.knobs.get("cuda_graph") is False and s.knobs.get("overlap_schedule") is not False and s.role != "prefill"
        ),
        words=says(
            "silent",
            "the decode step behind a prefill is launched, eagerly, before the first token is given away: on an H200, 20 "
            "layers, 150 ms instead of 80 for 128 new tokens",
        ),
        fix="leave cuda_graph on where times to first token are measured",
        change=without("cuda_graph"),
        source="0.5.9=srt/managers/scheduler.py:1135; 0.5.12=srt/managers/scheduler.py:1564; "
        "0.5.16=srt/managers/scheduler.py:1554; 0.5.23=srt/managers/scheduler.py:2061",
    ),
)

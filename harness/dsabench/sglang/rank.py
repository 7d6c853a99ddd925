"""How a deployment spreads over its GPUs, in one word: what a slice is cut for, and what launch settings hold for."""

from __future__ import annotations

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE
from dsabench.model.value import KnobValue
from dsabench.sglang.model_config import slice_of
from dsabench.sglang.slice import Shape, parse_strategy

_NOT_CUT = ("pp_size", "attn_cp_size", "dcp_size", "prefill_cp", "moe_dp_size")


def strategy_of(spec: RuntimeSpec) -> str | None:
    """That of a slice's deployment, or of the setting itself, in the words of `dsabench slice --strategy`: `tp2`, `tp2,dp2`, `dp4,ep4`; MTP
    is left out. None where no slice can be cut from it (nodes, roles, PP, CP).
    """
    shape = _shape_of(spec)
    if shape is None:
        return None
    words = [f"tp{shape.attn_tp}"] if shape.attn_tp > 1 or shape.dp == 1 else []
    words += [f"dp{shape.dp}"] if shape.dp > 1 else []
    return ",".join([*words, *([f"ep{shape.ep}"] if shape.ep > 1 else [])])


def _shape_of(spec: RuntimeSpec) -> Shape | None:
    match slice_of(spec.model):
        case {"gpus": int(gpus), "dp": int(dp), "ep": int(ep)}:
            return Shape(gpus, dp, ep, mtp=False)
    knobs = spec.knobs
    if (spec.topology or SINGLE) != SINGLE or any(_is_more_than_one(knobs.get(name)) for name in _NOT_CUT):
        return None
    gpus, groups = int(knobs.get("tp_size", 1)), int(knobs.get("dp_size", 1))
    if knobs.get("dp_attention") is not True and groups > 1:
        return None
    try:
        return parse_strategy(f"dp{groups},ep{int(knobs.get('ep_size', 1))}", gpus)
    except InputError:
        return None


def _is_more_than_one(value: KnobValue | None) -> bool:
    return value is True or (isinstance(value, int) and value > 1)

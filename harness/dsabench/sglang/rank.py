"""Which measurement of a slice stands for which deployment: the model that a rank computes, its settings, its load."""

from __future__ import annotations

from collections.abc import Mapping

from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE
from dsabench.model.value import KnobValue
from dsabench.model.workload import Workload
from dsabench.sglang.model_config import read_config
from dsabench.sglang.models import WIDTHS
from dsabench.sglang.readback import DIVIDED
from dsabench.sglang.slice import Limits, Shape, cut, parse_strategy

_SPREAD = ("tp_size", "dp_size", "dp_attention", "ep_size", "custom_all_reduce")
"""How a deployment spreads over its GPUs: what a slice is cut from, and so no setting of the slice."""
_NOT_CUT = ("pp_size", "attn_cp_size", "dcp_size", "prefill_cp", "moe_dp_size")
_MARK = "dsabench_slice"


def shape_of(spec: RuntimeSpec) -> Shape | None:
    """How a deployment spreads over its GPUs; None where no slice can be cut from it (nodes, roles, PP, CP)."""
    knobs = spec.knobs
    if (spec.topology or SINGLE) != SINGLE or any(_is_more_than_one(knobs.get(name)) for name in _NOT_CUT):
        return None
    gpus, groups = int(knobs.get("tp_size", 1)), int(knobs.get("dp_size", 1))
    if knobs.get("dp_attention") is not True and groups > 1:
        return None
    try:
        shape = parse_strategy(f"dp{groups},ep{int(knobs.get('ep_size', 1))}", gpus)
    except InputError:
        return None
    return Shape(shape.gpus, shape.dp, shape.ep, mtp=knobs.get("speculative_algorithm", "off") != "off")


def strategy_of(shape: Shape) -> str:
    """In the words of `dsabench slice --strategy`: `tp2`, `tp2,dp2`, `dp4,ep4`; MTP is left out."""
    words = [f"tp{shape.attn_tp}"] if shape.attn_tp > 1 or shape.dp == 1 else []
    words += [f"dp{shape.dp}"] if shape.dp > 1 else []
    return ",".join([*words, *([f"ep{shape.ep}"] if shape.ep > 1 else [])])


def stands_for(piece: RuntimeSpec, whole: RuntimeSpec, shape: Shape) -> bool:
    """Whether a one-GPU server computes what one rank of the deployment computes, under the settings of one rank."""
    same = (piece.kind, piece.version, piece.hardware) == (whole.kind, whole.version, whole.hardware)
    return same and _settings(piece.knobs, 1) == _settings(whole.knobs, shape.dp) and _is_cut_from(piece, whole, shape)


def load_of_rank(workload: Workload, groups: int) -> Workload | None:
    """What one of `groups` groups gets of a load; None where it cannot be divided evenly."""
    limit = workload.max_concurrency
    if workload.num_prompts % groups or (limit is not None and limit % groups):
        return None
    divided = {
        "num_prompts": workload.num_prompts // groups,
        "max_concurrency": None if limit is None else limit // groups,
        "request_rate": None if workload.request_rate is None else workload.request_rate / groups,
    }
    return workload.model_copy(update=divided)


def _is_more_than_one(value: KnobValue | None) -> bool:
    return value is True or (isinstance(value, int) and value > 1)


def _settings(knobs: Mapping[str, KnobValue], groups: int) -> dict[str, KnobValue]:
    kept = {name: value for name, value in knobs.items() if name not in _SPREAD}
    return {
        name: value // groups if name in DIVIDED and isinstance(value, int) and value > 0 else value
        for name, value in kept.items()
    }


def _is_cut_from(piece: RuntimeSpec, whole: RuntimeSpec, shape: Shape) -> bool:
    """Whether both models are cuts of one at the same depth: equal but for the mark, since strategies share slices."""
    of_whole, of_piece = read_config(whole.model), read_config(piece.model)
    if of_whole is None or of_piece is None:
        return False
    layers = of_whole.get("num_hidden_layers")
    one = Shape(1, 1, 1, mtp=False)
    plain = Shape(shape.gpus, shape.dp, shape.ep, mtp=False)
    for name, widths in WIDTHS.items():
        if not isinstance(layers, int) or not 2 <= layers <= widths.layers:
            continue
        if _unmarked(cut(name, one, layers, Limits()).config) == _unmarked(of_whole):
            return _unmarked(cut(name, plain, layers, Limits()).config) == _unmarked(of_piece)
    return False


def _unmarked(config: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name != _MARK}

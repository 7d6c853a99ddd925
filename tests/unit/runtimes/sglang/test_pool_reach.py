"""From which pool on flashmla_kv's quantiser of a bfloat16 cache loses its rows, and where that is known before a boot."""

from __future__ import annotations

import pytest

from dsabench.model.knobs import KnobValue
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleName, Topology
from dsabench.runtimes.sglang.hardware import HARDWARE
from dsabench.runtimes.sglang.rules import check
from dsabench.runtimes.sglang.rules.kernel_reads import REACH
from dsabench.runtimes.sglang.versions import parse_version
from sglang_rule_cases import BF16, FIVE_LAYERS, FP8, MTP, TP8, both

SLICE: dict[str, KnobValue] = {**BF16, **FIVE_LAYERS, **both("flashmla_kv")}
NODE: dict[str, KnobValue] = {**TP8, **BF16, **both("flashmla_kv")}


def found(
    knobs: dict[str, KnobValue],
    version: str = "0.5.16",
    *,
    hardware: str = "h200",
    model: str = "v3.2",
    role: RoleName = "server",
) -> set[str]:
    """Rules against these knobs."""
    roles = [Role(role=role, nodes=1, knobs=knobs)]
    if role != "server":
        roles.append(Role(role="decode" if role == "prefill" else "prefill", knobs=TP8))
    spec = RuntimeSpec(kind="sglang", model=model, topology=Topology(roles=tuple(roles)))
    return {
        finding.rule
        for finding in check(spec, parse_version(version), HARDWARE[hardware])
        if finding.role == role and finding.rule in {"SL04", "SL11", "SL12", "BE26"}
    }


def test_the_last_row_within_reach_starts_below_2_to_31() -> None:
    rows = REACH + 64  # one page for padding
    assert (rows - 1) * 656 < 2**31 <= (rows - 1 + 64) * 656


@pytest.mark.parametrize(("tokens", "refused"), [(200_000, False), (REACH + 63, False), (REACH + 64, True)])
def test_a_pool_that_is_asked_for_is_rounded_down_to_pages(tokens: int, refused: bool) -> None:
    assert ("SL11" in found({**SLICE, "max_total_tokens": tokens})) == refused


def test_a_slice_fills_the_memory_unless_told_not_to() -> None:
    assert found(SLICE) == {"SL11", "SL12"}
    assert found({**SLICE, "mem_fraction_static": 0.1}) == {"SL12"}


def test_a_pool_of_a_folder_is_not_known() -> None:
    assert found({**BF16, **both("flashmla_kv")}, model="/models/mine") == {"SL11", "SL12"}
    assert found({**SLICE, "model_overrides": '{"num_hidden_layers": 0}'}) == {"SL11", "SL12"}


@pytest.mark.parametrize(
    ("version", "refused"), [("0.5.9", True), ("0.5.18", True), ("0.5.19", False), ("0.5.23", False)]
)
def test_64_bits_have_no_such_reach(version: str, refused: bool) -> None:
    assert ("SL11" in found(SLICE, version)) == refused


def test_a_whole_model_has_no_room_for_so_large_a_pool() -> None:
    assert found(NODE) == {"SL12"}
    assert found(NODE, hardware="b200") == {"SL12"}


def test_pipeline_stages_have_fewer_layers_each_and_a_larger_pool() -> None:
    assert found({**NODE, "pp_size": 2}) == {"SL12"}
    assert found({**NODE, "pp_size": 4}) == {"SL11", "SL12"}
    assert found({**NODE, "pp_size": 4, "max_total_tokens": 1_000_000}) == {"SL12"}


def test_layers_spread_over_ranks_make_a_pool_of_unknown_size() -> None:
    knobs: dict[str, KnobValue] = {**NODE, "prefill_cp": True, "cp_mode": "interleave", "cache_layer_split": True}
    assert found(knobs, role="prefill") >= {"SL11"}


def test_half_a_pair_runs_one_of_the_kernels() -> None:
    decodes_fa3: dict[str, KnobValue] = {**TP8, **FP8, "prefill_backend": "flashmla_kv", "decode_backend": "fa3"}
    assert found(decodes_fa3, role="prefill") == set()
    assert found(decodes_fa3, role="decode") == {"SL04"}
    assert found({**MTP, **decodes_fa3}, role="prefill") == {"SL04"}  # the draft extends with decode's kernel
    assert found({**NODE, "decode_backend": "fa3"}, role="decode") == set()
    assert found({**NODE, "decode_backend": "fa3"}, "0.5.9", role="prefill") == {"BE26", "SL12"}
    assert found({**NODE, "decode_backend": "fa3"}, "0.5.11", role="prefill") == {"SL12"}

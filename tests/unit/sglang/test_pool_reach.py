"""From which pool on packed rows are lost, on their way into fp8 and back, and where that is known before a boot."""

from __future__ import annotations

import pytest

from dsabench.model.hardware import HARDWARE
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleName, Topology
from dsabench.model.value import KnobValue
from dsabench.sglang.models import MODELS
from dsabench.sglang.rules.memory import REACH
from dsabench.sglang.rules.table import RULES, check
from dsabench.sglang.versions import parse_version
from sglang_rule_cases import BF16, FIVE_LAYERS, FP8, MTP, TP8, both

SLICE: dict[str, KnobValue] = {**BF16, **FIVE_LAYERS, **both("flashmla_kv")}
NODE: dict[str, KnobValue] = {**TP8, **BF16, **both("flashmla_kv")}
FP8_SLICE: dict[str, KnobValue] = {
    **FP8,
    **FIVE_LAYERS,
    "prefill_backend": "flashmla_sparse",
    "decode_backend": "flashmla_kv",
}
FP8_NODE: dict[str, KnobValue] = {**TP8, **FP8, **both("flashmla_kv")}
RANDOM: dict[str, KnobValue] = {"load_format": "dummy"}


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
        if finding.role == role and finding.rule in {"SL04", "SL11", "SL12", "SL13", "SL14", "BE26"}
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


def test_a_prefix_beyond_is_read_from_elsewhere() -> None:
    assert found(FP8_SLICE) == {"SL13"}
    assert found({**FP8_SLICE, **RANDOM}) == {"SL14"}
    assert found({**FP8_SLICE, "max_total_tokens": REACH}) == set()
    assert found({**FP8_SLICE, **RANDOM, "max_total_tokens": REACH + 63}) == set()
    assert found({**FP8_SLICE, "max_total_tokens": REACH + 64}) == {"SL13"}
    assert found({**FP8_SLICE, "mem_fraction_static": 0.05}) == set()


@pytest.mark.parametrize(("version", "rules"), [("0.5.9", {"SL13"}), ("0.5.18", {"SL13"}), ("0.5.19", set())])
def test_dequantisers_were_widened_with_the_quantiser(version: str, rules: set[str]) -> None:
    assert found({**FP8_SLICE, **both("flashmla_kv")}, version) == rules


@pytest.mark.parametrize(("version", "rules"), [("0.5.16", {"SL13"}), ("0.5.17", set())])
def test_q8_has_a_dequantiser_of_its_own(version: str, rules: set[str]) -> None:
    q8: dict[str, KnobValue] = {**FP8_SLICE, "prefill_backend": "flashmla_sparse_q8", "mha_threshold_tokens": 0}
    assert found(q8, version) == rules
    assert found({**q8, "mha_threshold_tokens": 2048}, version) == {"SL13"}


def test_dense_prefill_reads_a_prefix_back_whatever_the_kernel() -> None:
    packed: dict[str, KnobValue] = {**FP8_SLICE, **both("flashmla_kv")}
    assert found(packed) == {"SL13"}
    assert found({**packed, "mha_threshold_tokens": 64}) == set()  # a cached page and one token more
    assert found({**packed, "mha_threshold_tokens": 65}) == {"SL13"}
    assert found({**packed, "prefill_cp": True, "cp_mode": "interleave", "tp_size": 8}) == set()
    assert found({**FP8_SLICE, "mha_threshold_tokens": 0}) == {"SL13"}


def test_other_caches_are_not_packed() -> None:
    assert found({**FP8_SLICE, **both("trtllm")}, hardware="b200") == set()
    assert found({**FP8_SLICE, **both("tilelang")}, hardware="mi300x") == set()
    assert found({**BF16, **FIVE_LAYERS, "prefill_backend": "flashmla_sparse", "decode_backend": "fa3"}) == set()


@pytest.mark.parametrize("hardware", ["h200", "b200", "h20", "h800"])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_whole_models_on_one_node_stay_below(hardware: str, model: str) -> None:
    assert found({**FP8_NODE, "prefill_backend": "flashmla_auto"}, "0.5.9", hardware=hardware, model=model) == set()
    assert found({**FP8_NODE, **MTP, "dp_size": 8, "dp_attention": True}, hardware=hardware, model=model) == set()


def test_whole_models_in_stages_do_not() -> None:
    assert found({**FP8_NODE, "pp_size": 2}) == {"SL13"}
    assert found({**FP8_NODE, "pp_size": 2, "mem_fraction_static": 0.7}) == set()


def test_decode_halves_read_no_prefix() -> None:
    assert found(FP8_SLICE, role="prefill") == {"SL13"}
    assert found({**FP8_SLICE, **both("flashmla_kv")}, role="decode") == set()


def test_what_is_not_known_is_no_error() -> None:
    folder: dict[str, KnobValue] = {**FP8, **both("flashmla_kv")}
    assert found(folder, model="/models/mine") == {"SL14"}
    assert found({**folder, "max_total_tokens": REACH}, model="/models/mine") == set()
    assert found({**folder, "max_total_tokens": REACH + 64}, model="/models/mine") == {"SL13"}


def test_layers_that_share_an_index_leave_room_for_more_tokens() -> None:
    stages: dict[str, KnobValue] = {**FP8_NODE, "pp_size": 2, "mem_fraction_static": 0.75}
    assert found(stages) == set()
    assert found({**stages, "index_topk_pattern": "F" + "S" * 60}) == {"SL13"}


def test_the_table_says_the_reach_that_is_computed() -> None:
    for rule in (rule for rule in RULES if rule.id in {"SL11", "SL13", "SL14"}):
        assert f"{REACH:,}" in rule.condition
        assert str(REACH) in rule.fix
        assert rule.change is not None
        assert rule.change(None) == {"max_total_tokens": REACH}  # type: ignore[arg-type]

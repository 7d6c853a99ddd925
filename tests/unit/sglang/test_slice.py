from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.model.runtime import labels_of
from dsabench.sglang.models import WIDTHS
from dsabench.sglang.slice import Limits, Slice, cut, parse_strategy

ROOT = Path(__file__).parents[3]


def piece(strategy: str, gpus: int = 8, model: str = "v3.2", layers: int = 8, **limits: float) -> Slice:
    return cut(model, parse_strategy(strategy, gpus), layers, Limits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "gpus", "widths"),
    [
        ("dp8,ep8", 8, (128, 32, 8, 2048, 18432)),  # the rank's own tokens, each at the full number of active experts
        ("tp8", 8, (16, 256, 8, 256, 2304)),  # every token, an eighth of each matrix
        ("tp8,ep8", 8, (16, 32, 1, 2048, 2304)),  # every token, one of its eight experts here on average
        ("tp2,dp4,ep8", 8, (64, 32, 4, 2048, 9216)),
        ("tp1", 1, (128, 256, 8, 2048, 18432)),
        ("tp2", 2, (64, 256, 8, 1024, 9216)),
        ("dp2,ep2", 2, (128, 128, 8, 2048, 18432)),
    ],
)
def test_heads_and_experts_of_one_rank(strategy: str, gpus: int, widths: tuple[int, ...]) -> None:
    """Heads, experts, active experts, width of an expert, width of a dense layer."""
    config = piece(strategy, gpus).config
    names = ("num_attention_heads", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
    assert tuple(config[name] for name in (*names, "intermediate_size")) == widths


@pytest.mark.parametrize("strategy", ["dp8,ep8", "tp8", "tp8,ep8", "tp2,dp4,ep8"])
@pytest.mark.parametrize("model", sorted(WIDTHS))
def test_a_rank_does_an_eighth_of_the_experts_work_and_holds_an_eighth_of_their_weights(
    model: str, strategy: str
) -> None:
    widths = WIDTHS[model]
    part = piece(strategy, model=model)
    config = part.config
    tokens = part.shape.dp  # of all ranks for each token of this rank's group
    work = int(config["num_experts_per_tok"]) * int(config["moe_intermediate_size"])  # type: ignore[arg-type, call-overload]
    whole = tokens * widths.active_experts * widths.moe_intermediate
    assert work * 8 == whole
    weights = int(config["n_routed_experts"]) * int(config["moe_intermediate_size"])  # type: ignore[arg-type, call-overload]
    assert weights * 8 == widths.experts * widths.moe_intermediate


def test_what_kernels_are_made_for_stays() -> None:
    config = piece("tp8").config
    fixed = ("kv_lora_rank", "qk_rope_head_dim", "index_head_dim", "index_topk", "index_n_heads", "hidden_size")
    assert [config[name] for name in fixed] == [512, 64, 128, 2048, 64, 7168]


def test_the_settings_of_the_deployment_are_divided_among_its_groups() -> None:
    knobs = piece("dp8,ep8", chunked_prefill_size=8192, max_running_requests=256).knobs
    assert (knobs["chunked_prefill_size"], knobs["max_running_requests"]) == (1024, 32)
    assert piece("tp8").knobs["chunked_prefill_size"] == 8192


def test_few_heads_are_padded_and_said_so() -> None:
    assert "16 heads per rank, computed as 64 by flashmla_sparse on Hopper" in piece("tp8").notes


def test_tokens_of_other_groups_are_said_to_be_left_out() -> None:
    assert any("sums up the tokens of all 8 groups" in note for note in piece("dp8").notes)
    assert not any("groups" in note for note in piece("tp8").notes)


def test_mtp_is_pinned_or_refused() -> None:
    with pytest.raises(InputError, match="accept no draft"):
        piece("dp8,ep8,mtp")
    knobs = piece("dp8,ep8,mtp", accept_length=2.5).knobs
    assert (knobs["speculative_algorithm"], knobs["simulated_accept_length"]) == ("EAGLE", 2.5)


@pytest.mark.parametrize(
    ("strategy", "gpus", "said"),
    [
        ("hisparse", 8, "hit rates come from the values"),
        ("tp4,dp4", 8, r"tp4 × dp4 is 16 ranks, and there are 8 GPUs"),
        ("dp8,ep4", 8, "ep4 does not spread over the 8 GPUs"),
        ("pp2", 8, "'pp2' is none of tpN, dpN, epN, mtp"),
        ("dp0", 8, "'dp0' is none of"),
        ("tp7", 7, "7 ranks cannot share"),
    ],
)
def test_what_does_not_fit_is_said(strategy: str, gpus: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        piece(strategy, gpus)


def test_a_slice_on_disk_is_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "one rank"
    assert run(["slice", "--strategy", "dp8,ep8", "--layers", "5", str(out)]) == 0
    assert "no communication" in capsys.readouterr().out
    config = load_study(out / "slice.yaml")
    assert config.runtime.model == out.as_posix()
    assert config.default.knobs["chunked_prefill_size"] == 1024
    assert labels_of(config.default) == ("random weights",)
    assert json.loads((out / "config.json").read_text())["dsabench_slice"] == {
        "gpus": 8,
        "dp": 8,
        "ep": 8,
        "of_layers": 61,
    }


@pytest.mark.parametrize(
    ("folder", "strategy", "gpus"),
    [
        ("v3.2-dp8-ep8-8l", "dp8,ep8", 8),
        ("v3.2-whole-8l", "tp1", 1),
        ("v3.2-tp2-8l", "tp2", 2),
        ("v3.2-dp2-8l", "dp2", 2),
        ("v3.2-dp2-ep2-8l", "dp2,ep2", 2),
        ("v3.2-tp4-8l", "tp4", 4),
        ("v3.2-dp4-8l", "dp4", 4),
        ("v3.2-tp2-dp2-8l", "tp2,dp2", 4),
    ],
)
def test_the_shipped_slices_are_what_the_command_writes(folder: str, strategy: str, gpus: int) -> None:
    shipped = json.loads((ROOT / "configs" / "slices" / folder / "config.json").read_text())
    assert shipped == piece(strategy, gpus).config


def test_labels_say_what_random_weights_did_not_do() -> None:
    config = load_study(ROOT / "configs" / "h200-slice.yaml")
    mtp = config.spec({"speculative_algorithm": "EAGLE", "simulated_accept_length": 2.5})
    assert labels_of(mtp) == ("random weights", "simulated")
    assert labels_of(config.default) == ("random weights",)
    assert labels_of(load_study(ROOT / "configs" / "h200.yaml").default) == ()

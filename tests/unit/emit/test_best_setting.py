"""The best setting of a study: from records made here, and of the committed studies through the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.emit.best_setting import Best, best_settings, study_of
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric, Record
from factories import make_record
from studies import STUDY, load_study

RESULTS = Path(__file__).parents[3] / "results"
BOUND = (
    "objective: {metric: output_throughput_tok_s, direction: maximize, constraints: [{metric: ttft_ms.p90, max: 500}]}"
)
TEXT = STUDY.replace(
    "  - {name: two, dataset: random-ids, input_len: 96, output_len: 4, num_prompts: 12, max_concurrency: 4}\n", ""
)
CHUNKS = TEXT.replace("objective: {metric: output_throughput_tok_s, direction: maximize}", BOUND).replace(
    "chunked_prefill_size: [128, 256]", "chunked_prefill_size: [64, 128, 256], mha_threshold_tokens: [32, 1024]"
)


@pytest.fixture
def bests(tmp_path):
    config = load_study(tmp_path, CHUNKS)
    (workload,) = config.workloads
    count = iter(range(1000))

    def made(value: float, ttft: float = 1.0, phase: str = "search", round_: int = 0, **knobs: int) -> Record:
        metrics = {"output_throughput_tok_s": Metric(value=value, n=16), "ttft_ms.p90": Metric(value=ttft, n=100)}
        spec, number = config.spec(knobs), next(count)
        more = {"phase": phase, "round_": round_, "occasion": number, "minute": number}
        record = make_record(spec=spec, workload=workload, outcome=Measured(metrics=metrics), **more)
        return record.model_copy(update={"study": "study"})

    def best_of(*records: Record, index_topk: int | None = 32) -> Best:
        (best,) = best_settings(study_of(config, tmp_path, records, index_topk, allow_simulated=False))
        return best

    return made, best_of


def test_it_is_a_confirmed_one_inside_the_constraints(bests) -> None:
    made, best_of = bests
    searched = [made(900, chunked_prefill_size=64), made(100), made(120, chunked_prefill_size=128)]
    assert best_of(*searched).chosen.value == pytest.approx(900)
    confirmed = [made(v, phase="confirm", chunked_prefill_size=128) for v in (110, 111)]
    confirmed += [made(130, phase="confirm", ttft=900, chunked_prefill_size=64)]
    best = best_of(*searched, *confirmed)
    chosen = best.chosen
    assert (chosen.value, chosen.boots, chosen.spec.knobs["chunked_prefill_size"]) == (pytest.approx(110.5), 2, 128)
    assert best.verdicts == ()  # no boot of the default was confirmed
    with pytest.raises(InputError, match="no measured setting is inside the constraints"):
        best_of(made(130, ttft=900))


def test_it_is_judged_by_the_boots_that_took_turns_with_it(bests) -> None:
    made, best_of = bests
    turns = []
    for base, value, knobs in ((400, 900, {"mha_threshold_tokens": 1024}), (100, 500, {"chunked_prefill_size": 64})):
        for boot in range(3):  # of two finalists, one after the other
            turns += [made(base + boot, phase="confirm"), made(value + 2 * boot, phase="confirm", **knobs)]
    best = best_of(*turns)
    (verdict,) = (one for one in best.verdicts if one.metric == "output_throughput_tok_s")
    assert (verdict.verdict, verdict.n_base, verdict.n_candidate) == ("better", 3, 3)
    assert verdict.effect == pytest.approx(4.0, abs=0.05)  # of 100, not of 400


@pytest.mark.parametrize("index_topk", [32, None])
def test_dense_attention_beyond_index_topk_takes_a_gate_here_as_in_a_table(bests, index_topk) -> None:
    made, best_of = bests
    dense = [made(500, phase="confirm", mha_threshold_tokens=1024), made(100, phase="confirm")]
    with pytest.raises(
        InputError, match=r"changes answers.*accuracy unproven.*A gate in the config.*Nothing else"
    ) as caught:
        best_of(*dense, index_topk=index_topk)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"may be one was not confirmed .chunked_prefill_size=64, 1 boot."):
        best_of(*dense, made(200, chunked_prefill_size=64), index_topk=index_topk)
    # Another finalist that may be a default is the best that can be had, and what was left out is named.
    best = best_of(*dense, made(200, phase="confirm", chunked_prefill_size=64), index_topk=index_topk)
    assert best.chosen.spec.knobs["chunked_prefill_size"] == 64
    assert [one.value for one in best.left_out] == [pytest.approx(500)]
    if index_topk is not None:  # up to index_topk dense attention is exact
        assert best_of(made(500, phase="confirm", mha_threshold_tokens=32)).chosen.value == pytest.approx(500)


def test_beside_a_best_that_may_not_be_one_stands_the_best_that_may(bests) -> None:
    """As `budget: {confirm_exact: true}` has them confirmed, in the same turns."""
    made, best_of = bests
    turns = []
    for boot in range(3):
        turns += [made(100 + boot, phase="confirm"), made(150 + boot, phase="confirm", chunked_prefill_size=64)]
        turns += [made(500 + boot, phase="confirm", mha_threshold_tokens=1024)]
    best = best_of(*turns)
    assert best.chosen.spec.knobs["chunked_prefill_size"] == 64
    assert [one.spec.knobs["mha_threshold_tokens"] for one in best.left_out] == [1024]
    (verdict,) = (one for one in best.verdicts if one.metric == "output_throughput_tok_s")
    assert (verdict.verdict, round(verdict.effect, 1)) == ("better", 0.5)


def emit(folder: str, config: str, out: Path, *more: str) -> int:
    return run(["emit", str(RESULTS / folder), "--as", "flags", "--config", config, "--out", str(out), *more])


def test_what_was_chosen_with_random_weights_is_refused_and_nothing_is_written(tmp_path, capsys) -> None:
    assert emit("h200/slice", "h200-slice", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "dense attention beyond index_topk=2048 changes answers" in said
    assert "chunked_prefill_size=4096, 1 boot" in said
    assert not (tmp_path / "out").exists()


def test_a_gate_that_was_passed_lets_it_out_with_verdicts_in_words(tmp_path, capsys) -> None:
    assert emit("reference-cpu-threshold", "local-threshold", tmp_path) == 0
    script = (tmp_path / "p140/best.sh").read_text()
    assert "THRESHOLD=512 " in script
    comment = [line for line in script.splitlines() if line.startswith("# ")]
    assert comment[:3] == [
        "# best of local-threshold under p140: total_throughput_tok_s 13,767, median of 6 boots",
        "# against the default, p140: better, +30.7 % (+24.2 % to +37.5 %), 6 and 6 boots",
        "# against the default, p480: better, +14.9 % (+11.6 % to +18.3 %), 6 and 6 boots",
    ]
    assert "passed the gate gsm8k-form" in comment[3]
    assert [line for line in (tmp_path / "p140/best.yaml").read_text().splitlines() if line.startswith("# ")] == comment


def test_what_was_refused_is_named_beside_what_was_chosen(tmp_path, capsys) -> None:
    assert emit("reference-cpu", "local", tmp_path) == 0
    script = (tmp_path / "chat/best.sh").read_text()
    assert "--speculative-algorithm EAGLE" in script
    assert "index_topk_pattern=FSSSSS: gsm8k-form came out worse, so it is no default" in script


def test_a_gate_that_was_not_passed_keeps_it_in(tmp_path, capsys) -> None:
    """The committed study without the settings that passed: the default and the one that the gate refused."""
    folder = tmp_path / "study"
    shutil.copytree(RESULTS / "reference-cpu" / "samples", folder / "samples")
    lines = (RESULTS / "reference-cpu" / "journal.jsonl").read_text().splitlines(keepends=True)
    knobs = [json.loads(line)["trial"]["runtime"]["knobs"] for line in lines]
    kept = [
        line
        for line, one in zip(lines, knobs, strict=True)
        if one["index_topk_pattern"] == "FSSSSS"
        or (one["mha_threshold_tokens"], one["speculative_algorithm"]) == (64, "off")
    ]
    (folder / "journal.jsonl").write_text("".join(kept))
    assert emit(str(folder), "local", tmp_path / "out") == 2
    assert "gsm8k-form came out worse, so it is no default" in capsys.readouterr().err


def test_what_rests_on_random_values_takes_a_word(tmp_path, capsys) -> None:
    assert emit("h200/hisparse", "h200-hisparse", tmp_path / "a", "--runtime-version", "0.5.16") == 0
    plain = (tmp_path / "a/best.sh").read_text()
    assert "--enable-hisparse" not in plain
    assert "--allow-simulated emits it all the same" in plain
    assert (
        emit("h200/hisparse", "h200-hisparse", tmp_path / "b", "--allow-simulated", "--runtime-version", "0.5.16") == 0
    )
    text = (tmp_path / "b/best.sh").read_text()
    assert "--enable-hisparse" in text
    assert "# measured with random weights, simulated" in text
    assert "# against the default, long: better, +27.6 %" in text


def test_the_default_is_known_where_each_setting_has_a_pool_of_its_own(tmp_path) -> None:
    words = ("--allow-simulated", "--runtime-version", "0.5.16")
    assert emit("h200/hisparse-rank", "h200-hisparse-rank", tmp_path, *words) == 0
    text = (tmp_path / "best.sh").read_text()
    assert "# against the default, long: better, +24.1 % (+23.2 % to +25.0 %), 3 and 3 boots" in text
    assert '"host_to_device_ratio": 5' in text

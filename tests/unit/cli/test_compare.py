from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsabench.cli.main import run
from dsabench.model.environment import fingerprint
from dsabench.model.record import Measured, Metric, Record
from dsabench.results.journal import Journal
from factories import ENVIRONMENT, make_record, make_spec

VALUES = (100.0, 101.0, 99.0, 100.5, 99.5)
AGAIN = (100.1, 100.9, 99.1, 100.4, 99.6)
"""The same setting measured once more."""


def write(
    folder: Path, values: tuple[float, ...], *, turn: int = 0, version: str | None = None, start_min: int = 0
) -> None:
    """Boots that take turns with those of another side, which has another `turn`."""
    journal = Journal(folder)
    for number, value in enumerate(values):
        metrics = {
            "output_throughput_tok_s": Metric(value=value, n=16),
            "ttft_ms.p50": Metric(value=1e4 / value, n=16),
            "energy_per_output_token_j": Metric(value=1e3 / value, n=16),
            "gpu.busy_share.mean": Metric(value=value / 200, n=50),
        }
        place = 2 * number + (turn + number) % 2  # AB BA AB
        record = make_record(occasion=start_min + place, minute=start_min + place, outcome=Measured(metrics=metrics))
        journal.append(record if version is None else of_version(record, version))


def of_version(record: Record, version: str) -> Record:
    identity = record.environment.runtime.model_copy(update={"version": version})
    new = {"runtime": identity, "fingerprint": fingerprint(record.environment.hardware, identity)}
    return record.model_copy(update={"environment": ENVIRONMENT.model_copy(update=new)})


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_json_has_the_verdicts_and_whether_boots_took_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(0.9 * value for value in AGAIN), turn=1)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json", "--gate"]) == 1
    answer = answer_of(capsys)
    assert (answer["interleaved"], answer["pairs"], answer["reason"]) == (True, 5, None)
    verdicts = answer["verdicts"]
    assert {(v["metric"], v["verdict"]) for v in verdicts} == {
        ("output_throughput_tok_s", "worse"),
        ("ttft_ms.p50", "worse"),
    }
    assert verdicts[0].keys() >= {"metric", "workload", "effect", "ci_low", "ci_high", "mde", "verdict"}
    assert verdicts[0]["effect"] == pytest.approx(-0.1, abs=0.005)


def test_less_energy_is_better_and_a_busier_gpu_is_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(1.2 * value for value in AGAIN), turn=1)
    asked = ["--metric", "energy_per_output_token_j", "--metric", "gpu.busy_share.mean"]
    sides = ["compare", str(tmp_path / "b"), str(tmp_path / "a"), *asked]
    assert run([*sides, "--json", "--gate"]) == 1
    assert [v["verdict"] for v in answer_of(capsys)["verdicts"]] == ["worse", "differs"]
    assert run([*sides, "--markdown"]) == 0
    assert "1 worse, 1 differs." in capsys.readouterr().out
    assert run([*sides[:3], *asked[2:], "--gate"]) == 0
    assert "differs" in capsys.readouterr().out


def test_a_commit_is_a_side_and_what_it_has_already_is_not_compared_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path / "results" / "nightly", VALUES)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "baseline")
    write(tmp_path / "results" / "nightly", tuple(0.9 * value for value in AGAIN), turn=1)
    monkeypatch.chdir(tmp_path)
    assert run(["compare", "main", "results", "--json", "--metric", "output_throughput_tok_s"]) == 0
    (verdict,) = answer_of(capsys)["verdicts"]
    assert (verdict["verdict"], verdict["n_base"], verdict["n_candidate"]) == ("worse", 5, 5)
    assert run(["compare", "main:results/nothing", "results"]) == 2
    assert "no journal.jsonl" in capsys.readouterr().err


def test_other_environments_are_refused_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", AGAIN, version="0.2.0", turn=1)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "runtime.version 0.1.0, then 0.2.0" in capsys.readouterr().err
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--across-environments", "--json"]) == 0
    assert {verdict["n_base"] for verdict in answer_of(capsys)["verdicts"]} == {5}


def test_only_environments_of_both_sides_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "a", tuple(3 * value for value in VALUES), version="0.2.0")
    write(tmp_path / "b", AGAIN, turn=1)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert all(abs(verdict["effect"]) < 0.001 for verdict in answer_of(capsys)["verdicts"])


def test_markdown_shows_the_worse_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(0.9 * value for value in AGAIN), turn=1)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("interleaved: 5 pairs of boots in turns\n\n### ")
    rows = [line for line in out.splitlines() if line.startswith("| short")]
    assert len(rows) == 2
    assert all(row.endswith("🔴 worse |") for row in rows)


SHARED = {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 8192, "speculative_algorithm": "off"}


def write_setting(folder: Path, factor: float, turn: int, **knobs: bool | float | str) -> None:
    journal = Journal(folder)
    first = 2 * len(journal.read().records)
    for number, value in enumerate(VALUES):
        metrics = {
            name: Metric(value=factor * value + turn * number, n=16)
            for name in ("output_throughput_tok_s", "steady.output_throughput_tok_s")
        }
        spec = make_spec(**SHARED, **knobs)
        outcome = Measured(metrics=metrics)
        journal.append(make_record(spec=spec, occasion=number, minute=first + 2 * number + turn, outcome=outcome))


def test_at_80_columns_no_word_is_broken_and_what_all_have_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for turn, (side, factor) in enumerate((("a", 1.0), ("b", 14.0))):
        for kernel in ("flashmla_sparse", "flashmla_kv"):
            knobs = {"prefill_backend": kernel, "decode_backend": kernel, "mha_threshold_tokens": 4096}
            write_setting(tmp_path / side, factor, turn, **knobs, prefix_cache=kernel == "flashmla_kv")
    words = ["--metric", "output_throughput_tok_s", "--metric", "steady.output_throughput_tok_s"]
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), *words]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert not any(f"{name}=" in out for name in (*SHARED, "mha_threshold_tokens"))
    lines = [line.rstrip() for line in out.splitlines()]
    assert " short: prefill_backend=flashmla_kv decode_backend=flashmla_kv prefix_cache=True" in lines
    assert sum(line.startswith("   output_throughput_tok_s  ") for line in lines) == 2
    assert "     throughput_tok_s" in lines  # the longer name goes on behind a _


def test_the_same_records_and_copies_of_them_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a" / "one", VALUES)
    write(tmp_path / "copy", VALUES, turn=1, start_min=600)  # other boots, other times, the same numbers
    for sides in (("a", "a/one"), ("a", "copy")):
        words = ["compare", *(str(tmp_path / side) for side in sides)]
        assert run([*words, "--gate"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "the same records or copies of them" in printed.err
        assert run([*words, "--json"]) == 2
        answer = answer_of(capsys)
        assert (answer["interleaved"], answer["pairs"], answer["verdicts"]) == (False, 0, [])
        assert "nothing was measured since" in answer["reason"]


def test_one_boot_a_side_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES[:1])
    write(tmp_path / "b", (50.0,), turn=1)
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert run([*words, "--gate"]) == 2
    assert "nothing can be judged" in capsys.readouterr().err
    assert run([*words, "--json"]) == 2
    assert answer_of(capsys)["reason"].startswith("nothing can be judged: ")


def test_boots_that_lie_apart_get_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(0.9 * value for value in AGAIN), start_min=25)
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--metric", "output_throughput_tok_s"]
    assert run(words) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("not interleaved: the boots did not take turns")
    assert "dsabench ci CONFIG --in-turns" in printed.err
    assert run([*words, "--json"]) == 2
    answer = answer_of(capsys)
    assert (answer["interleaved"], answer["pairs"]) == (False, 0)
    (verdict,) = answer["verdicts"]
    assert (verdict["verdict"], verdict["ci_low"]) == ("inconclusive", None)
    assert verdict["effect"] == pytest.approx(-0.1, abs=0.005)
    assert "(25 minutes apart), so drift may be the whole difference" in verdict["reason"]


def test_drift_between_occasions_widens_the_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = 24 * 60
    for number, level in enumerate((1.0, 1.01, 0.995, 1.005, 1.002, 0.998)):
        write(tmp_path / "a", tuple(level * value for value in VALUES), start_min=number * day)
    write(tmp_path / "b", tuple(0.9 * value for value in AGAIN), start_min=6 * day)
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--metric", "output_throughput_tok_s", "--json"]
    assert run(words) == 2
    capsys.readouterr()
    assert run([*words, "--not-interleaved"]) == 0
    (verdict,) = answer_of(capsys)["verdicts"]
    assert verdict["verdict"] == "worse"
    assert "judged by 5 differences between occasions of one setting" in verdict["reason"]
    assert run([*words, "--not-interleaved", "--occasion-spread", "0.1"]) == 0
    (wide,) = answer_of(capsys)["verdicts"]
    assert (wide["verdict"], wide["interleaved"]) == ("inconclusive", False)
    assert wide["ci_low"] < -0.2 < 0 < wide["ci_high"]
    assert "as stated" in wide["reason"]
    assert run([*words, "--occasion-spread", "0.1"]) == 2
    assert "only with --not-interleaved" in capsys.readouterr().err


def test_folders_with_the_same_trials_are_compared_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for turn, (side, values) in enumerate((("a", VALUES), ("b", AGAIN))):
        write(tmp_path / side / "shipped", values, turn=turn)
        write(tmp_path / side / "patched", tuple(2 * value for value in values), turn=turn)
    sides = [str(tmp_path / side) for side in "ab"]
    assert run(["compare", *sides, "--json", "--metric", "output_throughput_tok_s"]) == 0
    found = {one["arm"]: one for one in answer_of(capsys)["verdicts"]}
    assert found.keys() == {"patched", "shipped"}
    assert all((one["n_base"], one["n_candidate"]) == (5, 5) for one in found.values())
    assert all(abs(one["effect"]) < 0.001 for one in found.values())  # pooled it would be noise of 50 %
    assert run(["compare", *sides]) == 0
    out = capsys.readouterr().out
    assert all(sum(line.strip() == f"{arm}, short" for line in out.splitlines()) == 1 for arm in found)


def test_a_trial_of_two_environments_has_a_heading_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for turn, (side, values) in enumerate((("a", VALUES), ("b", AGAIN))):
        for version in ("0.1.0", "0.2.0"):
            write(tmp_path / side, values, turn=turn, version=version)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith(" short in ")]
    assert len(headings) == len(set(headings)) == 2

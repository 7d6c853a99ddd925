from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.model.environment import fingerprint
from dsabench.model.record import Measured, Metric, Record
from dsabench.results.journal import Journal
from factories import ENVIRONMENT, make_record, make_spec

VALUES = (100.0, 101.0, 99.0, 100.5, 99.5)


def write(folder: Path, values: tuple[float, ...], *, first_occasion: int = 0, version: str | None = None) -> None:
    journal = Journal(folder)
    for number, value in enumerate(values):
        metrics = {
            "output_throughput_tok_s": Metric(value=value, n=16),
            "ttft_ms.p50": Metric(value=1e4 / value, n=16),
            "energy_per_output_token_j": Metric(value=1e3 / value, n=16),
            "gpu.busy_share.mean": Metric(value=value / 200, n=50),
        }
        record = make_record(
            occasion=first_occasion + number, minute=first_occasion + number, outcome=Measured(metrics=metrics)
        )
        journal.append(record if version is None else of_version(record, version))


def of_version(record: Record, version: str) -> Record:
    identity = record.environment.runtime.model_copy(update={"version": version})
    new = {"runtime": identity, "fingerprint": fingerprint(record.environment.hardware, identity)}
    return record.model_copy(update={"environment": ENVIRONMENT.model_copy(update=new)})


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_json_is_a_list_of_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(0.9 * value for value in VALUES))
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json", "--gate"]) == 1
    verdicts = json.loads(capsys.readouterr().out)
    assert {(v["metric"], v["verdict"]) for v in verdicts} == {
        ("output_throughput_tok_s", "worse"),
        ("ttft_ms.p50", "worse"),
    }
    assert verdicts[0].keys() >= {"metric", "workload", "effect", "ci_low", "ci_high", "mde", "verdict"}
    assert verdicts[0]["effect"] == pytest.approx(-0.1, abs=0.005)


def test_less_energy_is_better_and_a_busier_gpu_is_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(1.2 * value for value in VALUES))
    asked = ["--metric", "energy_per_output_token_j", "--metric", "gpu.busy_share.mean"]
    sides = ["compare", str(tmp_path / "b"), str(tmp_path / "a"), *asked]
    assert run([*sides, "--json", "--gate"]) == 1
    assert [v["verdict"] for v in json.loads(capsys.readouterr().out)] == ["worse", "differs"]
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
    write(tmp_path / "results" / "nightly", tuple(0.9 * value for value in VALUES), first_occasion=5)
    monkeypatch.chdir(tmp_path)
    assert run(["compare", "main", "results", "--json", "--metric", "output_throughput_tok_s"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert (verdict["verdict"], verdict["n_base"], verdict["n_candidate"]) == ("worse", 5, 5)
    assert run(["compare", "main:results/nothing", "results"]) == 2
    assert "no journal.jsonl" in capsys.readouterr().err


def test_other_environments_are_refused_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", VALUES, version="0.2.0")
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "runtime.version 0.1.0, then 0.2.0" in capsys.readouterr().err
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--across-environments", "--json"]) == 0
    assert {verdict["n_base"] for verdict in json.loads(capsys.readouterr().out)} == {5}


def test_only_environments_of_both_sides_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "a", tuple(3 * value for value in VALUES), version="0.2.0")
    write(tmp_path / "b", VALUES, first_occasion=5)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert all(abs(verdict["effect"]) < 1e-9 for verdict in json.loads(capsys.readouterr().out))


def test_markdown_shows_the_worse_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a", VALUES)
    write(tmp_path / "b", tuple(0.9 * value for value in VALUES))
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| short")]
    assert len(rows) == 2
    assert all(row.endswith("🔴 worse |") for row in rows)


SHARED = {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 8192, "speculative_algorithm": "off"}


def write_setting(folder: Path, factor: float, **knobs: bool | float | str) -> None:
    journal = Journal(folder)
    first = len(journal.read().records)
    for number, value in enumerate(VALUES):
        metrics = {
            name: Metric(value=factor * value, n=16)
            for name in ("output_throughput_tok_s", "steady.output_throughput_tok_s")
        }
        spec = make_spec(**SHARED, **knobs)
        outcome = Measured(metrics=metrics)
        journal.append(make_record(spec=spec, occasion=number, minute=first + number, outcome=outcome))


def test_at_80_columns_no_word_is_broken_and_what_all_have_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for side, factor in (("a", 1.0), ("b", 14.0)):
        for kernel in ("flashmla_sparse", "flashmla_kv"):
            knobs = {"prefill_backend": kernel, "decode_backend": kernel, "mha_threshold_tokens": 4096}
            write_setting(tmp_path / side, factor, **knobs, prefix_cache=kernel == "flashmla_kv")
    words = ["--metric", "output_throughput_tok_s", "--metric", "steady.output_throughput_tok_s"]
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), *words]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert not any(f"{name}=" in out for name in (*SHARED, "mha_threshold_tokens"))
    lines = [line.rstrip() for line in out.splitlines()]
    assert " short: prefill_backend=flashmla_kv decode_backend=flashmla_kv prefix_cache=True" in lines
    assert sum(line.startswith("   output_throughput_tok_s  ") for line in lines) == 2
    assert "     throughput_tok_s" in lines  # the longer name goes on behind a _


def test_the_same_records_on_both_sides_are_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a" / "one", VALUES)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "a" / "one"), "--gate"]) == 0
    out = capsys.readouterr().out
    assert (out.count("\n"), "the same records, nothing was measured since" in out) == (1, True)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_folders_with_the_same_trials_are_compared_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, first in (("a", 0), ("b", 5)):
        write(tmp_path / side / "shipped", VALUES, first_occasion=first)
        write(tmp_path / side / "patched", tuple(2 * value for value in VALUES), first_occasion=first)
    sides = [str(tmp_path / side) for side in "ab"]
    assert run(["compare", *sides, "--json", "--metric", "output_throughput_tok_s"]) == 0
    found = {one["arm"]: one for one in json.loads(capsys.readouterr().out)}
    assert found.keys() == {"patched", "shipped"}
    assert all((one["n_base"], one["n_candidate"]) == (5, 5) for one in found.values())
    assert all(abs(one["effect"]) < 1e-9 for one in found.values())  # pooled it would be noise of 50 %
    assert run(["compare", *sides]) == 0
    out = capsys.readouterr().out
    assert all(sum(line.strip() == f"{arm}, short" for line in out.splitlines()) == 1 for arm in found)


def test_a_trial_of_two_environments_has_a_heading_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, first in (("a", 0), ("b", 5)):
        for version in ("0.1.0", "0.2.0"):
            write(tmp_path / side, VALUES, first_occasion=first, version=version)
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith(" short in ")]
    assert len(headings) == len(set(headings)) == 2

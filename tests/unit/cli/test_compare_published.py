from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.cli.main import run

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "results" / "reference-cpu" / "journal.jsonl"
CHAT, DOCUMENT = (
    next(
        f"{EVIDENCE}#{record['id'][:10]}"
        for record in map(json.loads, EVIDENCE.read_text().splitlines())
        if record["trial"]["workload"]["name"] == name
    )
    for name in ("chat", "document")
)
"""Four at a time, and one at a time with seed 2."""
LINE = '{"backend": "sglang", "dataset_name": "random-ids", "request_rate": Infinity, "duration": 2.0, "completed": 4, "mean_ttft_ms": %s}\n'


def test_a_record_beside_a_published_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "h800-latency", DOCUMENT]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "no verdict: a single run has no spread" in out
    for words in ("mean_ttft_ms 199.9", "accelerator H800 none", "dataset random custom", "seed 1 2"):
        assert words in out
    assert "better" not in out
    assert "worse" not in out


def test_json_names_figures_and_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", CHAT, "b200-latency", "--json", "--metric", "ttft_ms.mean"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["figures"]) == ["mean_ttft_ms"]
    assert said["figures"]["mean_ttft_ms"]["candidate"] == 317.58
    assert said["verdict"] is None
    assert said["differing"]["max_concurrency"] == {"base": 4, "candidate": 1}


def test_lines_of_bench_serving(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "bench.jsonl"
    log.write_text(LINE % 10.0)
    assert run(["compare", "h800-latency", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["mean_ttft_ms"]["candidate"] == 10.0
    log.write_text(LINE % 10.0 + LINE % 20.0)
    assert run(["compare", "h800-latency", str(log)]) == 2
    assert f"2 runs; name one as {log}#1 to {log}#2" in capsys.readouterr().err
    assert run(["compare", f"{log}#1", f"{log}#2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["mean_ttft_ms"]["change"] == 1.0
    assert run(["compare", f"{log}#1", f"{log}#2"]) == 0
    assert "base (measured) candidate (measured) difference" in " ".join(capsys.readouterr().out.split())
    assert run(["compare", "h800-latency", f"{log}#3"]) == 2
    assert "has the runs 1 to 2" in capsys.readouterr().err


def test_words_of_a_file_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "bench.jsonl"
    log.write_text(json.dumps({**json.loads(LINE % 10.0), "dataset_name": "[red]\x1b[31mevil"}) + "\n")
    assert run(["compare", "h800-latency", str(log)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[red]" in out


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "bench.jsonl"
    log.write_text(LINE % 10.0 + "{\n")
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken\n")
    cases = {
        ("h800-latency", "b200-latency", "--gate"): "--gate needs verdicts",
        ("h800-latency", str(log)): "bench.jsonl:2: not JSON",
        ("h800-latency", str(EVIDENCE)): "trials; name one as",
        ("h800-latency", str(broken)): "missing key 'source'",
        ("h800-latency", "no-such-place"): "no-such-place",
    }
    for words, said in cases.items():
        assert run(["compare", *words]) == 2, words
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1

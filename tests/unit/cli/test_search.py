"""`dsabench search`: a landscape in the documented format, replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from program import dsabench

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def landscape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by hand, as the page describes it: 24 settings, of which those with x = 3 fail."""
    file = tmp_path_factory.mktemp("landscape") / "mine.jsonl"
    axes = {"x": [0, 1, 2, 3], "y": [1, 2, 4], "z": ["p", "q"]}
    lines: list[dict[str, object]] = [
        {"landscape": 1, "name": "mine", "base": {"x": 0, "y": 1, "z": "p"}, "axes": axes, "noise": 0.01}
    ]
    for x in axes["x"]:
        for y in axes["y"]:
            for z in axes["z"]:
                result = (
                    {"fault": "exited"} if x == 3 else {"value": 100.0 + 10 * x + 5 * y + (z == "q"), "trials_s": 30}
                )
                lines.append({"setting": {"x": x, "y": y, "z": z}, "boot_s": 60, **result})
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_json_has_the_documented_keys(landscape: Path, tmp_path: Path) -> None:
    done = dsabench(
        "search", "replay", str(landscape), "--proposer", "gp", "--seeds", "3", "--within", "3%", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    wanted = {"proposer", "median_cost_fraction", "p25", "p75", "reached", "random_median_cost_fraction"}
    assert told.keys() >= wanted | {"tpe_median_cost_fraction", "regret_24"}
    assert (told["proposer"], told["reached"], told["regret_24"]) == ("gp", 3, 0.0)
    assert 0 < told["p25"] <= told["median_cost_fraction"] <= told["p75"] <= 1
    assert [one["proposer"] for one in told["against"]] == ["random", "tpe"]


def test_the_answer_fits_a_terminal_and_the_picture_is_written(landscape: Path, tmp_path: Path) -> None:
    done = dsabench(
        *("search", "replay", str(landscape), "--seeds", "2", "--against", "grid", "--plot", "curve.svg"),
        cwd=tmp_path,
        COLUMNS="80",
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "x=2 y=4 z=q" in done.stdout
    assert (tmp_path / "curve.svg").read_text().count("hours of boots and trials") == 1


def test_an_earlier_study_that_knew_the_best_is_told_at_once(landscape: Path, tmp_path: Path) -> None:
    words = (
        "search",
        "replay",
        str(landscape),
        "--memory",
        str(landscape),
        "--against",
        "grid",
        "--seeds",
        "2",
        "--json",
    )
    told = json.loads(dsabench(*words, cwd=tmp_path).stdout)
    assert told["median_boots"] == told["against"][0]["median_boots"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--proposer", "gpp"],
            "unknown proposer 'gpp'; did you mean gp? (allowed: gp, tpe, nsga2, grid, random, coordinate)",
        ),
        (["--within", "200%"], "'200%' is not a share: use 3% or 0.03"),
        (["--plot", "none/curve.svg", "--seeds", "1"], "none/curve.svg: No such file or directory"),
    ],
)
def test_wrong_input_is_one_line(landscape: Path, tmp_path: Path, words: list[str], message: str) -> None:
    done = dsabench("search", "replay", str(landscape), *words, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_generates_a_landscape_and_names_what_is_wrong(tmp_path: Path) -> None:
    done = dsabench("search", "generate", "smooth", "--seed", "4", "-o", "space.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote space.jsonl: 960 settings" in done.stdout
    done = dsabench("search", "generate", "smoth", "-o", "space.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("did you mean smooth?")) == (2, 1)
    done = dsabench("search", "replay", "nowhere.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (2, "error: nowhere.jsonl: No such file or directory")


def test_results_are_exported_and_searched_like_the_folder(tmp_path: Path) -> None:
    results = str(ROOT / "results" / "reference-cpu")
    done = dsabench("search", "export", results, "--config", "local", "-o", "local.jsonl.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote local.jsonl.gz: 6 settings, 0 of them fail" in done.stdout
    assert "warning: 570 of 576 settings are not measured" in done.stderr
    answers = [
        json.loads(dsabench("search", "replay", *words, "--seeds", "2", "--json", cwd=tmp_path).stdout)
        for words in (("local.jsonl.gz",), (results, "--config", "local"))
    ]
    assert answers[0] == answers[1]
    for words, message in (((str(tmp_path),), "no record"), ((results, "-o", "no/x.jsonl"), "no/x.jsonl: No such")):
        done = dsabench("search", "export", "-o", "x.jsonl", "--config", "local", *words, cwd=tmp_path)
        assert (done.returncode, message in done.stderr) in {(2, True), (3, True)}, done.stderr

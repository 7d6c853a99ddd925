"""Whole sweeps over the real reference server, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsabench.results.journal import read_journal
from dsabench.results.samples import read_samples
from studies import STUDY, read_until, wait_for_load, write_study

DSABENCH = (sys.executable, "-m", "dsabench")


def dsabench(*words: str | Path, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DSABENCH, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def start(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DSABENCH, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def lines_of(results: Path) -> list[dict]:
    return [json.loads(line) for line in (results / "journal.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """A study that ran to its end: (config, results, the finished process)."""
    folder = tmp_path_factory.mktemp("finished")
    config = write_study(folder)
    return config, folder / "results", dsabench("sweep", config, "--results", folder / "results")


def test_the_machine_is_in_every_record(finished) -> None:
    _, results, _ = finished
    for line in lines_of(results):
        metrics, warnings = line["outcome"]["metrics"], line["outcome"]["warnings"]
        assert 0 < metrics["host.cpu_busy_share"]["value"] <= 1  # the reference runtime computes on these cores
        assert not [name for name in metrics if name.startswith(("gpu.", "energy_"))]
        assert not [warning for warning in warnings if "idle" in warning and "GPU" in warning]


def test_a_sweep_ends_with_a_verdict_a_picture_and_a_journal(finished) -> None:
    _, results, done = finished
    assert done.returncode == 0, done.stderr
    lines = lines_of(results)
    wanted = {"schema_version", "id", "occasion", "boot", "trial", "environment", "started_at", "duration_s", "outcome"}
    assert all(wanted <= line.keys() for line in lines)
    assert {line["outcome"]["kind"] for line in lines} == {"measured"}
    phases = [line["phase"] for line in lines]
    assert (phases.count("search"), phases.count("confirm")) == (6, 8)
    assert len({line["boot"] for line in lines}) == 3 + 4
    assert re.search(r"better|worse|no difference|inconclusive", done.stdout)
    assert "2 and 2 boots in turns" in done.stdout
    said = " ".join(done.stdout.split())
    assert "Stopped because 6 trials of the search are measured (max_trials)" in said
    assert "14 trials, 6 of the search and 8 of the confirmation (0 failed), 14 of them measured now" in said
    assert "2 and 2 boots: a verdict takes 3 a side" in said
    assert "Undecided. 3 boots per side would probably tell." in said
    assert re.search(r"one: output_throughput_tok_s [\d,.]+, TTFT p50 [\d.]+ ms, ITL p50 [\d.]+ ms", done.stderr)
    assert "not sglang" in done.stdout
    plot = Path(re.search(r"^plot: (.+)$", done.stdout, re.MULTILINE)[1])
    assert plot.read_text().startswith("<?xml")
    assert "\x1b[" not in done.stdout + done.stderr


def test_samples_back_the_metrics(finished) -> None:
    _, results, _ = finished
    record = read_journal(results / "journal.jsonl").records[0]
    samples = read_samples(results / record.outcome.samples)
    assert len(samples) == 12
    assert sum(sample.output_tokens for sample in samples) == record.outcome.metrics["output_tokens"].value == 48
    assert all(sample.sent_s >= sample.scheduled_s for sample in samples)
    assert record.outcome.metrics["ttft_ms.p50"].n == 12
    assert "ttft_ms.p99" not in record.outcome.metrics


def test_a_second_run_does_nothing_and_says_so(finished) -> None:
    config, results, _ = finished
    before = (results / "journal.jsonl").read_bytes()
    done = dsabench("sweep", config, "--results", results)
    assert done.returncode == 0
    assert "Nothing to do: what the budget allows is measured" in done.stdout  # 6 of 8 trials of the search
    assert "--again" in done.stdout
    assert (results / "journal.jsonl").read_bytes() == before


def test_json_is_one_object_with_the_result(finished) -> None:
    config, results, _ = finished
    done = dsabench("sweep", config, "--results", results, "--json")
    data = json.loads(done.stdout)
    assert (data["trials"], data["failed"], data["measured_now"]) == (14, 0, 0)
    assert {verdict["workload"] for verdict in data["verdicts"]} == {"one", "two"}
    assert data["best"]["knobs"] != data["default"]


def test_a_dry_run_plans_and_starts_nothing(finished, tmp_path) -> None:
    config, results, _ = finished
    fresh = dsabench("sweep", config, "--results", tmp_path / "none", "--dry-run")
    assert fresh.returncode == 0
    assert "7 boots, 14 trials" in fresh.stdout
    assert "about 56 s (2.0 s a boot, 3.0 s a trial, assumed" in fresh.stdout
    assert not (tmp_path / "none").exists()
    plan = json.loads(dsabench("sweep", config, "--results", results, "--dry-run", "--json").stdout)
    assert (plan["boots"], plan["trials"], plan["estimate_from"]) == (7, 14, "records")
    assert plan["settings"][0]["label"] == "default"
    assert (plan["left"], plan["estimated_s"]) == ({"boots": 0, "trials": 0}, 0.0)
    shown = dsabench("sweep", config, "--results", results, "--dry-run").stdout
    assert "nothing is left to measure" in shown
    assert "7 boots are recorded already, 0 left; --again measures them once more" in shown
    anew = json.loads(dsabench("sweep", config, "--results", results, "--dry-run", "--again", "--json").stdout)
    assert anew["left"] == {"boots": 7, "trials": 14}


def test_another_installation_is_named_on_the_command_line(finished, tmp_path) -> None:
    config, results, _ = finished
    broken = tmp_path / "site" / "dsabench"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SystemExit(1)")
    other = ("--again", "--launch-env", f"PYTHONPATH={broken.parent}")
    assert "has no dsabench" in dsabench("sweep", config, "--results", tmp_path / "results", *other).stderr
    wrong = dsabench("sweep", config, "--results", results, "--launch-env", "PYTHONPATH")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "--launch-env: use NAME=VALUE" in wrong.stderr


@pytest.mark.slow
def test_again_measures_new_occasions(finished, tmp_path) -> None:
    config, results, _ = finished
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "journal.jsonl").write_bytes((results / "journal.jsonl").read_bytes())
    done = dsabench("sweep", config, "--results", copy, "--again", "--max-trials", "2", "--json")
    assert json.loads(done.stdout)["measured_now"] == 2
    new = lines_of(copy)[14:]
    assert {line["round"] for line in new} == {1}
    taken = {line["id"]: line["occasion"] for line in lines_of(copy)[:14]}
    assert all(line["occasion"] == taken[line["id"]] + 1 for line in new)
    resumed = dsabench("sweep", config, "--results", copy, "--max-trials", "2")
    assert "Nothing to do" in resumed.stdout


def test_list_show_and_compare(finished) -> None:
    _, results, _ = finished
    listed = dsabench("results", "list", "--results", results)
    assert listed.stdout.count("confirm") == 8
    line = lines_of(results)[0]
    shown = dsabench("results", "show", f"{line['id'][:12]}:0", "--results", results)
    assert line["environment"]["fingerprint"] in shown.stdout
    assert "ttft_ms.p50" in shown.stdout
    ambiguous = dsabench("results", "show", "", "--results", results)
    assert ambiguous.returncode == 2
    assert "means 14 records" in ambiguous.stderr

    same = dsabench("compare", results, results, "--json")
    assert (same.returncode, json.loads(same.stdout)["verdicts"]) == (2, [])  # nothing was measured since
    nothing = dsabench("compare", f"{results}#{line['id']}", f"{results}#ffff")
    assert nothing.returncode == 2
    assert len(nothing.stderr.splitlines()) == 1


def test_trials_of_one_workload_compare_by_setting(finished) -> None:
    _, results, _ = finished
    ids = {}
    for line in lines_of(results):
        if line["phase"] == "confirm" and line["trial"]["workload"]["name"] == "one":
            ids[line["id"]] = None
    base, best = ids
    done = dsabench(
        "compare", f"{results}#{base}", f"{results}#{best}", "--metric", "output_throughput_tok_s", "--json"
    )
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert (verdict["workload"], verdict["n_base"], verdict["n_candidate"]) == ("one", 2, 2)
    assert verdict["effect"] is not None
    assert (verdict["ci_low"], verdict["reason"]) == (None, "2 and 2 boots: a verdict takes 3 a side")


@pytest.mark.slow
def test_an_illegal_setting_is_a_typed_record_and_the_sweep_goes_on(tmp_path) -> None:
    text = STUDY.replace("[flashmla_kv, flashmla_sparse]", "[flashmla_kv]").replace(
        "confirm_boots: 2", "confirm_boots: 0"
    )
    text = text.replace(
        "chunked_prefill_size: [128, 256]", "chunked_prefill_size: [256, 128], kv_cache_dtype: [fp8_e4m3, bfloat16]"
    )
    done = dsabench("sweep", write_study(tmp_path, text), "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    outcomes = [line["outcome"] for line in lines_of(tmp_path / "results")]
    failed = [outcome for outcome in outcomes if outcome["kind"] == "failed"]
    assert failed
    assert {(one["stage"], one["fault"], one["transient"]) for one in failed} == {("boot", "illegal_config", False)}
    assert "flashmla_kv" in failed[0]["message"]
    assert len(outcomes) > len(failed)
    assert "illegal_config" in dsabench("results", "list", "--failed", "--results", tmp_path / "results").stdout


def server_of(sweep: subprocess.Popen[str], deadline_s: float = 80.0) -> psutil.Process:
    """The reference server below a running sweep."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        for process in psutil.Process(sweep.pid).children(recursive=True):
            try:
                if "dsabench.reference.launch_server" in process.cmdline():
                    return process
            except psutil.Error:
                continue
        time.sleep(0.05)
    raise AssertionError("no server appeared")


SLOW = STUDY.replace("num_prompts: 12, max_concurrency: 2", "num_prompts: 400, max_concurrency: 2").replace(
    "confirm_boots: 2", "confirm_boots: 0"
)


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_a_trial_is_recorded_and_tried_once_more(tmp_path) -> None:
    results = tmp_path / "results"
    sweep = start("sweep", write_study(tmp_path, SLOW), "--results", results, "--max-trials", "2")
    server = server_of(sweep)
    read_until(sweep, "ready after")
    wait_for_load(results)
    server.kill()
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 0, err
    lines = lines_of(results)
    assert [(line["occasion"], line["outcome"]["kind"]) for line in lines] == [
        (0, "failed"),
        (1, "measured"),
        (0, "measured"),
    ]
    assert (lines[0]["outcome"]["fault"], lines[0]["outcome"]["transient"]) == ("killed", True)
    assert lines[0]["boot"] != lines[1]["boot"]


def test_a_sweep_killed_within_a_boot_goes_on_where_it_was(tmp_path) -> None:
    """SIGKILL between the two workloads of a boot: the first stays measured, and nothing is measured twice."""
    text = STUDY.replace("[128, 256]", "[256]").replace("confirm_boots: 2", "confirm_boots: 1")
    config, results = write_study(tmp_path, text), tmp_path / "results"
    sweep = start("sweep", config, "--results", results)
    read_until(sweep, "  one: ")
    sweep.kill()
    sweep.communicate()
    before = (results / "journal.jsonl").read_bytes()
    assert before.count(b"\n") >= 1
    done = dsabench("sweep", config, "--results", results)
    assert done.returncode == 0, done.stderr
    assert (results / "journal.jsonl").read_bytes().startswith(before)
    lines = lines_of(results)
    assert {line["outcome"]["kind"] for line in lines} == {"measured"}
    assert len({(line["id"], line["occasion"]) for line in lines}) == len(lines)
    assert len({line["id"] for line in lines if line["phase"] == "search"}) == 4
    assert re.search(r"better|worse|no difference|inconclusive", done.stdout)


def test_ctrl_c_keeps_what_is_measured_and_prints_how_to_go_on(tmp_path) -> None:
    results = tmp_path / "results"
    config = write_study(tmp_path, SLOW)
    sweep = start("sweep", config, "--results", results)
    server = server_of(sweep)
    read_until(sweep, "ready after")
    os.kill(sweep.pid, signal.SIGINT)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert f"dsabench sweep {config} --results {results}" in err
    assert "Traceback" not in err
    assert not server.is_running()


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once_and_leaves_nothing_behind(tmp_path) -> None:
    sweep = start("sweep", write_study(tmp_path, SLOW), "--results", tmp_path / "results")
    server = server_of(sweep)
    os.kill(sweep.pid, signal.SIGINT)
    time.sleep(0.05)
    os.kill(sweep.pid, signal.SIGINT)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "Traceback" not in err
    psutil.wait_procs([server], timeout=60)
    assert not server.is_running()


@pytest.mark.slow
def test_two_sweeps_into_one_folder_do_not_mix(tmp_path) -> None:
    config, results = write_study(tmp_path, SLOW), tmp_path / "results"
    first = start("sweep", config, "--results", results)
    try:
        server_of(first)
        second = dsabench("sweep", config, "--results", results)
        assert second.returncode == 2
        assert f"pid {first.pid}" in second.stderr
    finally:
        os.kill(first.pid, signal.SIGINT)
        first.communicate(timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sweep", "nowhere.yaml"), "no such file"),
        (("sweep",), "name a config"),
        (("sweep", "local", "--budget", "soon"), "is not a duration"),
        (("swep",), "sweep"),
        (("results", "list", "--results", "/nonexistent"), "no such folder"),
        (("compare", "/nonexistent", "/nonexistent"), "no such folder"),
    ],
)
def test_mistakes_end_in_one_line_and_exit_2(words, said) -> None:
    done = dsabench(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert said in done.stderr


@pytest.mark.slow
def test_a_full_disk_ends_in_one_line_and_exit_3(tmp_path) -> None:
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "from dsabench.cli.main import run\n"
        f"sys.exit(run(['sweep', {str(write_study(tmp_path))!r}, '--results', {str(tmp_path / 'results')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")

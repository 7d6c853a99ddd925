"""The commands as a user runs them; the kernels run in a process of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import torch

from dsabench.results.journal import claim_folder
from program import dsabench


def kernels(*words):
    return dsabench("kernels", *words)


def test_list_says_what_runs_here_and_why_not():
    found = json.loads(kernels("list", "sparse_decode", "kv_quantise", "--device", "cpu", "--json").stdout)
    assert found["kv_quantise"]["torch_pack"]["status"] == "ok"
    entries = [entry for entries in found.values() for entry in entries.values()]
    assert all(("reason" in entry) == (entry["status"] == "unavailable") for entry in entries)


def test_list_names_sglangs_own_swap_in_beside_torchs_copies():
    found = json.loads(kernels("list", "hisparse_swap_in", "--device", "cpu", "--json").stdout)["hisparse_swap_in"]
    assert {name: entry["status"] for name, entry in found.items()} == {
        "sglang_jit": "unavailable",
        "torch_copy_missing": "ok",
        "torch_copy_all": "ok",
    }
    assert found["sglang_jit"]["reason"] == "needs a GPU"


def test_check_prints_the_contract_and_exits_0():
    done = kernels("check", "kv_quantise", "kv_dequantise", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"kv_quantise", "kv_dequantise"}
    for entries in found.values():
        for entry in entries.values():
            assert entry["status"] in ("ok", "unavailable")
            assert ("rel_err" in entry) == (entry["status"] == "ok")
            assert ("reason" in entry) == (entry["status"] == "unavailable")


@pytest.mark.slow
def test_bench_records_goes_on_and_reports(tmp_path):
    words = ("bench", "kv_quantise", "--shapes", "small-h8-b1-q96-kv96", "--spread", "0.5", "--device", "cpu")
    where = ("--results", str(tmp_path / "k"))
    first = kernels(*words, *where, "--json")
    assert first.returncode == 0, first.stderr
    entry = json.loads(first.stdout)["kv_quantise"]["torch_pack"]
    assert entry["status"] == "ok"
    assert entry["times"][0]["median_us"] > 0
    table = pq.read_table(tmp_path / "k" / "kernels.parquet").to_pylist()
    assert {row["candidate"] for row in table} == {"torch_pack", "torch_pack_in_place"}
    for name in ("operator", "candidate", "shape_id", "dtype", "median_us", "mad_us", "n", "split"):
        assert all(row[name] is not None for row in table)

    lines = (tmp_path / "k" / "kernels.jsonl").read_text().splitlines()
    second = kernels(*words, *where, "--json")
    assert (tmp_path / "k" / "kernels.jsonl").read_text().splitlines() == lines  # nothing was measured twice
    assert json.loads(second.stdout) == json.loads(first.stdout)

    shown = kernels("report", *where, "-o", str(tmp_path / "page"))
    assert shown.returncode == 0, shown.stderr
    page = (tmp_path / "page" / "index.html").read_text()
    assert "torch_pack" in page
    assert "<table class=map>" in page


@pytest.mark.slow
def test_a_wrong_word_ends_in_one_line_and_exit_2(tmp_path):
    for words, said in (
        (("check", "nope"), "no operator 'nope'"),
        (
            ("bench", "mtp_verify", "--shapes", "v3.2-h128-*-kv8192"),
            "--shapes v3.2-h128-*-kv8192: fits no shape of mtp_verify",
        ),
        (("bench", "--patience", "0s"), "--patience 0s: 1s or more"),
        (("check", "--seed", "99999999999999999999"), "'--seed'"),
        (("bench", "--budget", "5 minutes"), "--budget 5 minutes: a number with s, m or h"),
        (("check", "--dtypes", "fp4"), "--dtypes fp4: one of bf16, fp8"),
        (("check", "kv_quantise", "--shapes", "huge"), "not a shape such as"),
        (("report", "--results", str(tmp_path)), "nothing to report"),
    ):
        done = kernels(*words)
        assert done.returncode == 2
        *before, last = done.stderr.splitlines()
        assert last.startswith("error: ")
        assert said in last
        assert [line for line in before if not line.startswith("waiting for ")] == []


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_measured_and_leaves_no_worker(tmp_path):
    argv = [sys.executable, "-m", "dsabench", "kernels", "bench", "sparse_*", "--device", "cpu"]
    with subprocess.Popen(
        [*argv, "--spread", "0.5", "--results", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not re.match(r"\d+/\d+ sparse_prefill", process.stderr.readline()):  # the first point is written
            pass
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in rest
    recorded = (tmp_path / "kernels.jsonl").read_text()
    assert recorded.endswith("}\n")
    assert re.search(
        rf"interrupted: {len(recorded.splitlines())} points? measured and recorded; the same command", rest
    )
    assert pq.read_metadata(tmp_path / "kernels.parquet").num_rows == len(recorded.splitlines())
    assert workers
    psutil.wait_procs(workers, timeout=5)
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
def test_what_is_waited_for_is_said_at_once_and_what_ran_is_counted(tmp_path):
    words = ("bench", "kv_quantise", "--budget", "0s", "--spread", "0.5", "--device", "cpu", "--results", str(tmp_path))
    first, second = kernels(*words), kernels(*words)
    assert first.stderr.splitlines()[0] == f"waiting for {sys.executable} to start and import torch"
    assert "2 of 3 candidates run here; 6 points to do\n" in first.stderr
    assert "2 of 3 candidates run here; 4 points to do, 2 known already\n" in second.stderr
    ran = "2 candidates ran, 1 did not, 0 wrong; 2 points measured"
    assert first.stdout == f"{ran}, 4 left: the same command goes on with them\n"
    assert second.stdout == f"{ran}, 2 left: the same command goes on with them\n"


def test_a_candidate_none_of_whose_points_ran_is_not_ok(tmp_path):
    words = ("bench", "kv_quantise", "kv_dequantise", "--budget", "0s", "--spread", "0.5", "--device", "cpu")
    found = json.loads(kernels(*words, "--results", str(tmp_path), "--json").stdout)
    assert found["kv_quantise"]["torch_pack"]["status"] == "ok"
    assert found["kv_dequantise"]["torch_cast"] == {"status": "unavailable", "reason": "none of its points was begun"}


def test_one_that_takes_no_dtype_asked_for_says_so():
    words = (
        "check",
        "sparse_decode",
        "--dtypes",
        "bf16",
        "--shapes",
        "small-h8-b1-q1-kv40",
        "--device",
        "cpu",
        "--json",
    )
    found = json.loads(kernels(*words).stdout)["sparse_decode"]
    assert found["torch_flashmla_kv"] == {"status": "unavailable", "reason": "takes fp8, asked for was bf16"}
    assert found["torch_masked_dense"]["status"] == "ok"


def test_a_shape_that_memory_does_not_hold_is_unavailable_and_not_wrong():
    done = kernels("check", "sparse_decode", "--shapes", "small-h8-b1-q1-kv9999999999999", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert {entry["status"] for entry in json.loads(done.stdout)["sparse_decode"].values()} == {"unavailable"}


def test_an_interpreter_without_numpy_has_one_candidate_less_and_none_wrong(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    [there] = (tmp_path / "bare/lib").glob("python*/site-packages")
    for found in Path(torch.__file__).parents[1].iterdir():
        if found.suffix != ".pth" and not found.name.startswith(("numpy", "__pycache__")):
            (there / found.name).symlink_to(found)
    words = ("check", "topk_select", "--shapes", "small-h8-b8-q1-kv256", "--device", "cpu", "--json")
    done = kernels(*words, "--kernel-python", str(tmp_path / "bare/bin/python"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["topk_select"]
    assert found["torch_select"] == {"status": "unavailable", "reason": "numpy is not installed"}
    assert found["torch_topk"] == {"status": "ok", "rel_err": 0.0}


@pytest.mark.slow
def test_a_slow_start_is_said_again_and_again(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    done = kernels("check", "kv_quantise", "--kernel-python", str(slow), "--patience", "6s")
    assert done.returncode == 3
    waiting, reminded, error = done.stderr.splitlines()
    assert waiting == f"waiting for {slow} to start and import torch"
    assert reminded == f"5 s: {slow} to start and import torch"
    assert error.endswith("nothing was heard for 6 s (--patience)")


def test_two_do_not_measure_into_one_folder(tmp_path):
    words = ("bench", "kv_quantise", "--spread", "0.5", "--device", "cpu", "--results", str(tmp_path))
    with claim_folder(tmp_path):
        done = kernels(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}: another run (pid {os.getpid()}) uses this folder")
    assert kernels(*words).returncode == 0


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    done = kernels("bench", "kv_quantise", "--results", str(tmp_path / "file"))
    assert done.returncode == 3
    assert done.stderr == f"error: {tmp_path / 'file'}: File exists\n"


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_written_whole(tmp_path):
    words = ("bench", "kv_quantise", "--spread", "0.5", "--device", "cpu", "--results", str(tmp_path))
    limited = ["sh", "-c", 'ulimit -f 3; exec "$@"', "sh", sys.executable, "-m", "dsabench", "kernels", *words]
    full = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert full.returncode == 3
    assert full.stderr.splitlines()[-1].endswith("File too large: the measurement was not written")
    assert kernels(*words).stdout.startswith("2 candidates ran, 1 did not, 0 wrong;")
    assert pq.read_metadata(tmp_path / "kernels.parquet").num_rows == 6

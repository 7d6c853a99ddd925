"""Sweeps that boot several servers at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import psutil
import pytest

import kill_sweeps
from studies import EXACT, SHARED, STUDY, read_until, write_study


def two_lanes(test):
    """Two lanes measure on two cores, so no other test may have one of them."""
    alone = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each lane takes a core")
    return pytest.mark.slow(pytest.mark.timing(alone(test)))


DSABENCH = (sys.executable, "-m", "dsabench")


def start(config: Path, results: Path, mark: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DSABENCH, "sweep", str(config), "--results", str(results), "--lanes", "2", *words],
        env=os.environ | {kill_sweeps.MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def lines_of(results: Path) -> list[dict]:
    return [json.loads(line) for line in (results / "journal.jsonl").read_text().splitlines()]


def check_complete(results: Path) -> None:
    """Every setting searched once, both finalists confirmed twice, no occasion twice."""
    lines = lines_of(results)
    assert {line["outcome"]["kind"] for line in lines} == {"measured"}
    assert max(Counter((line["id"], line["occasion"]) for line in lines).values()) == 1
    searched = Counter(line["id"] for line in lines if line["phase"] == "search")
    confirmed = Counter(line["id"] for line in lines if line["phase"] == "confirm")
    assert (len(searched), set(searched.values())) == (6, {1})
    assert (len(confirmed), set(confirmed.values())) == (4, {2})


BARRIER = """
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
if "dsabench.reference.launch_server" in sys.orig_argv:
    (here / f"begun-{os.getpid()}").touch()
    while len(list(here.glob("begun-*"))) < 2:
        time.sleep(0.02)
"""
"""The first server waits for a second one to begin: lanes that boot one after the other never become ready."""


@two_lanes
def test_two_lanes_share_a_study_and_one_concludes_it(tmp_path: Path) -> None:
    config, results = write_study(tmp_path), tmp_path / "results"
    (tmp_path / "sitecustomize.py").write_text(BARRIER)
    barrier = ("--launch-env", f"PYTHONPATH={tmp_path}")
    sweep = start(config, results, "complete", *barrier)
    out, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, err
    check_complete(results)
    lines = lines_of(results)
    assert {tuple(line["labels"]) for line in lines} == {("one of 2 lanes",)}
    assert {line["environment"]["hardware"]["cpu_cores"] for line in lines} == {len(os.sched_getaffinity(0)) // 2}
    assert "14 trials, 6 of the search and 8 of the confirmation (0 failed), 14 of them measured now" in " ".join(
        out.split()
    )
    assert re.search(r"better|worse|no difference|inconclusive", out)
    assert not list(results.glob(".sweep.lanes*"))
    again = start(config, results, "nothing", *barrier)
    assert "Nothing to do" in again.communicate(timeout=60)[0]
    assert lines_of(results) == lines


@two_lanes
def test_each_lane_uses_its_boot_for_all_its_settings(tmp_path: Path) -> None:
    """Also while the other lane measures in between."""
    config, results = (
        write_study(tmp_path, SHARED.replace("confirm_boots: 2", "confirm_boots: 0")),
        tmp_path / "results",
    )
    sweep = start(config, results, uuid.uuid4().hex)
    err = sweep.communicate(timeout=180)[1]
    assert sweep.returncode == 0, err
    lines = lines_of(results)
    assert {line["outcome"]["kind"] for line in lines} == {"measured"}
    assert len({line["id"] for line in lines}) == len(lines) == 13 * 2
    assert len({line["boot"] for line in lines}) == 5, err


@two_lanes
def test_what_a_killed_lane_had_begun_is_measured_by_another(tmp_path: Path) -> None:
    config, results, mark = write_study(tmp_path), tmp_path / "results", uuid.uuid4().hex
    sweep = start(config, results, mark)
    read_until(sweep, "lane 2: boot")
    lanes = [
        child
        for child in psutil.Process(sweep.pid).children()
        if child.cmdline()[:3] == psutil.Process(sweep.pid).cmdline()[:3]
    ]
    lanes[1].kill()
    err = sweep.communicate(timeout=120)[1]
    assert sweep.returncode == 0, err
    assert "lane 2 was killed; what is left is measured without it" in err
    check_complete(results)
    tally = kill_sweeps.Tally()
    kill_sweeps.check_gone(mark, set(), tally)
    assert tally.problems == []


@two_lanes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_lanes_end_with_whoever_started_them(tmp_path: Path, number: int) -> None:
    config, results, mark = write_study(tmp_path), tmp_path / "results", uuid.uuid4().hex
    sweep = start(config, results, mark)
    read_until(sweep, "ready after")
    ports = kill_sweeps.listening(kill_sweeps.marked(mark))
    assert ports
    sweep.send_signal(number)
    _, err = sweep.communicate(timeout=60)
    tally = kill_sweeps.Tally()
    kill_sweeps.check_gone(mark, ports, tally)
    assert tally.problems == []
    if number == signal.SIGKILL:
        return
    assert sweep.returncode == 130
    assert f"dsabench sweep {config} --results {results} --lanes 2" in err
    before = lines_of(results) if (results / "journal.jsonl").exists() else []
    done = start(config, results, mark)
    err = done.communicate(timeout=120)[1]
    assert done.returncode == 0, err
    check_complete(results)
    assert lines_of(results)[: len(before)] == before


def test_more_lanes_than_cores_are_refused_in_one_line(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    words = ["sweep", str(write_study(tmp_path)), "--results", str(tmp_path / "r"), "--lanes", "64"]
    done = subprocess.run([*DSABENCH, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if cores < 64:
        assert done.returncode == 2
        assert done.stderr.strip() == f"error: --lanes 64: each takes a core at least, and this process may use {cores}"
        planned = subprocess.run([*DSABENCH, *words, "--dry-run"], capture_output=True, text=True, check=False)
        assert planned.returncode == 0
        assert "planned for another machine (--lanes 64" in planned.stderr


def test_a_config_that_names_the_gpus_is_refused(tmp_path: Path) -> None:
    launch = '  launch: {env: {CUDA_VISIBLE_DEVICES: "0"}}'
    text = STUDY.replace("  ready_timeout_s: 60", f"{launch}\n  ready_timeout_s: 60")
    words = ["sweep", str(write_study(tmp_path, text)), "--results", str(tmp_path / "r"), "--lanes", "2"]
    done = subprocess.run([*DSABENCH, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr == "error: --lanes: the config sets CUDA_VISIBLE_DEVICES, but each lane needs its own value\n"


@two_lanes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_the_moment_a_lane_is_forked_ends_both(tmp_path: Path, number: int) -> None:
    config, results, mark = write_study(tmp_path), tmp_path / "results", uuid.uuid4().hex
    program = f"""
import os, time
os.register_at_fork(
    after_in_parent=lambda: os.kill(os.getpid(), {int(number)}),
    after_in_child=lambda: time.sleep(0.3),  # it begins when that is over
)
from dsabench.cli.main import main
main()
"""
    words = ["sweep", str(config), "--results", str(results), "--lanes", "2"]
    said = tmp_path / "said"
    with said.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env=os.environ | {kill_sweeps.MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=60,
            check=False,
        )
    assert done.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert ("Continue with:" in said.read_text()) == (number != signal.SIGKILL)
    assert "Traceback" not in said.read_text()
    tally = kill_sweeps.Tally()
    kill_sweeps.check_gone(mark, set(), tally)
    assert tally.problems == []


@two_lanes
def test_lanes_that_are_told_twice_hurry(tmp_path: Path) -> None:
    config, results, mark = write_study(tmp_path), tmp_path / "results", uuid.uuid4().hex
    sweep = start(config, results, mark)
    read_until(sweep, "ready after")
    for _ in range(2):
        sweep.send_signal(signal.SIGINT)
    err = sweep.communicate(timeout=60)[1]
    assert sweep.returncode == 130
    assert "Continue with:" in err
    assert "Traceback" not in err
    tally = kill_sweeps.Tally()
    kill_sweeps.check_gone(mark, set(), tally)
    assert tally.problems == []
    assert not list(results.glob(".sweep.lanes*"))


@two_lanes
def test_a_boot_that_was_cut_is_repeated_and_none_more(tmp_path: Path) -> None:
    config, results = write_study(tmp_path, EXACT), tmp_path / "results"
    sweep = start(config, results, "cut")
    read_until(sweep, "boot 3/7 ")
    read_until(sweep, "  one: ")
    sweep.send_signal(signal.SIGINT)
    sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    sweep = start(config, results, "whole")
    out, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, err
    assert "boots are the limit" not in out
    check_complete(results)

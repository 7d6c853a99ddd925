"""SIGKILL of any part of a deployment in the middle of a trial: a record, no orphan, and the sweep goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from studies import STUDY, read_until, wait_for_load, write_study

pytestmark = pytest.mark.slow

RANKS = "tp_size: 2"
PD = "topology: {roles: [{role: prefill}, {role: decode}], router: {}}"
Choose = Callable[[list[psutil.Process]], psutil.Process]


def study(base: str = "", runtime: str = "") -> str:
    text = STUDY.replace(
        "chunked_prefill_size: 256}", f"chunked_prefill_size: 256, {base}}}" if base else "chunked_prefill_size: 256}"
    )
    text = text.replace(
        "  ready_timeout_s: 60", f"  ready_timeout_s: 60\n  {runtime}" if runtime else "  ready_timeout_s: 60"
    )
    return text.replace("num_prompts: 12, max_concurrency: 2", "num_prompts: 200, max_concurrency: 2").replace(
        "confirm_boots: 2", "confirm_boots: 0"
    )


def with_words(*words: str) -> Choose:
    def choose(processes: list[psutil.Process]) -> psutil.Process:
        return next(one for one in processes if " ".join(words) in " ".join(one.cmdline()))

    return choose


def last_rank(processes: list[psutil.Process]) -> psutil.Process:
    """A rank is a fork of its server: the same words, and a server for its parent."""
    servers = [one for one in processes if "dsabench.reference.launch_server" in one.cmdline()]
    return max((one for one in servers if one.ppid() in {other.pid for other in servers}), key=lambda one: one.pid)


@pytest.mark.parametrize(
    ("text", "choose", "named"),
    [
        (study(base=RANKS), last_rank, "killed from outside by SIGKILL"),
        (study(runtime=PD), with_words("-m", "dsabench.reference.router"), "router: killed from outside by SIGKILL"),
        (
            study(runtime=PD),
            with_words("--disaggregation-mode", "prefill"),
            "prefill-0: killed from outside by SIGKILL",
        ),
        (study(runtime=PD), with_words("--disaggregation-mode", "decode"), "decode-0: killed from outside by SIGKILL"),
    ],
    ids=["rank", "router", "prefill", "decode"],
)
def test_a_killed_part_is_recorded_and_the_sweep_goes_on(tmp_path: Path, text: str, choose: Choose, named: str) -> None:
    results = tmp_path / "results"
    words = ("sweep", str(write_study(tmp_path, text)), "--results", str(results), "--max-trials", "2")
    sweep = subprocess.Popen(
        [sys.executable, "-m", "dsabench", *words], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    read_until(sweep, "ready after")
    wait_for_load(results)
    processes = psutil.Process(sweep.pid).children(recursive=True)
    choose(processes).kill()
    _, err = sweep.communicate(timeout=110)
    assert sweep.returncode == 0, err
    lines = [json.loads(line) for line in (results / "journal.jsonl").read_text().splitlines()]
    assert [(line["occasion"], line["outcome"]["kind"]) for line in lines] == [
        (0, "failed"),
        (1, "measured"),
        (0, "measured"),
    ]
    outcome = lines[0]["outcome"]
    assert (outcome["stage"], outcome["fault"], outcome["transient"]) == ("load", "killed", True)
    assert named in outcome["message"]
    assert lines[0]["boot"] != lines[1]["boot"]
    assert not [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

"""`dsabench bench` against the reference runtime in a process of its own: what is void says so, what is written is told."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from unit.reference.server.serving import ROOT, Server, serving

LOAD = "--dataset-name random-ids --tokenize-prompt --random-input-len 8 --random-output-len 16 --disable-tqdm"


def bench(server: Server, words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "dsabench", "bench", "--base-url", server.url, *shlex.split(words)]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=90)


def count_of(label: str, block: str) -> int:
    return int(re.search(rf"^{label}: +(\d+)", block, re.MULTILINE).group(1))


def test_a_server_that_dies_in_the_run_voids_it(tmp_path: Path) -> None:
    with serving() as dying:
        before = dying.counters()["requests"]

        def kill_after_some() -> None:
            while dying.counters()["requests"] < before + 20:
                time.sleep(0.01)
            dying.process.kill()

        killer = threading.Thread(target=kill_after_some)
        killer.start()
        done = bench(dying, f"{LOAD} --num-prompts 2000 --max-concurrency 4 --output-file o.jsonl", tmp_path)
        killer.join(10)
    assert done.returncode == 3, done.stderr
    failed, completed = count_of("Failed requests", done.stdout), count_of("Successful requests", done.stdout)
    assert (failed + completed, failed > 200) == (2000, True)
    assert f"more than 10% of the requests failed ({failed} of 2000)" in done.stderr
    assert json.loads((tmp_path / "o.jsonl").read_text())["failed"] == failed


@pytest.mark.slow
def test_the_example_of_the_page_runs_as_it_stands(server: Server, tmp_path: Path) -> None:
    block = re.search(r"\$ dsabench bench (.*?)```", (ROOT / "docs" / "bench.md").read_text(), re.DOTALL)
    words = block.group(1).replace("\\\n", " ").replace("http://127.0.0.1:30000", server.url)
    done = bench(server, words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert count_of("Successful requests", done.stdout) == 500
    assert "Failed requests" not in done.stdout
    assert json.loads((tmp_path / "runs.jsonl").read_text())["completed"] == 500


def test_a_server_that_listens_and_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    """It names its model at once, and its vocabulary, of which the prompts are drawn, only when its ranks are up."""
    with serving(wait=False) as listening:
        done = bench(listening, f"{LOAD} --num-prompts 4", tmp_path)
    assert done.returncode == 0, done.stderr


def test_more_ids_than_the_server_has_are_refused(server: Server, tmp_path: Path) -> None:
    done = bench(server, f"{LOAD} --vocab-size 1000 --num-prompts 4", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: --vocab-size 1000: {server.url} has 259 ids and refuses others: leave the flag out\n"
    assert bench(server, f"{LOAD} --vocab-size 259 --num-prompts 4", tmp_path).returncode == 0


@pytest.mark.parametrize("more", ["", "--json"])
def test_the_last_line_says_where_the_record_is(server: Server, tmp_path: Path, more: str) -> None:
    done = bench(server, f"{LOAD} --num-prompts 4 {more}", tmp_path)
    [file] = tmp_path.iterdir()
    assert file.name.startswith("sglang_")
    assert done.stderr.splitlines()[-1] == f"appended to {file.name}"
    inside = subprocess.run(("git", "check-ignore", "-q", file.name), cwd=ROOT, check=False)
    assert inside.returncode == 0

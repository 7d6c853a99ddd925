"""Every command of README, docs/ and the pages of results runs as it is printed there.

The commands run in a copy of the repository: sweeps with --dry-run, since they take minutes or a GPU. What needs a
server, an installed sglang or a file of the reader's has to end with a clear refusal.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from check_docs import ROOT, commands, pages

pytestmark = pytest.mark.slow

LACKED = (
    *("/opt/sglang", "/opt/patched", "~/src/sglang", "PYTHON", "CONFIG", "CHECKOUT", "TABLE", "http://127.0.0.1:30000"),
    *(
        "gsm8k_test.jsonl",
        "base.jsonl",
        "candidate.jsonl",
        "results/base",
        "traffic.jsonl",
        "other.jsonl",
        "results/mine",
    ),
    "export NEW",
    *("compare main results", "HEAD~1:results"),  # newer records than those of the commit
)
"""What a reader has and this machine has not."""
SHORTER = {
    "sweep": "--dry-run",
    "autotune": "--dry-run",
    "accept": "--dry-run",
    "tune hisparse": "--dry-run",
    "tune mtp": "--dry-run",
    "bench": "--ready-check-timeout-sec 0",
}
"""Words a command begins with, and what keeps it short here."""
ELSEWHERE = {
    "ci": "tests/e2e/test_ci.py",
    "eval": "tests/unit/evals (data sets are downloaded)",
    "kernels check": "tests/unit/dsakernels",
    "report --results results/local --out live --serve": "tests/unit/cli/test_serve_site.py",
    "kernels bench": "tests/unit/kernelbench",
    "doctor": "tests/unit/doctor",
    "tune mha-threshold": "tests/e2e/test_threshold_gate.py",
}
"""Words a command begins with, and which tests run it: it takes long or the network, or exits by what the machine is like."""

# In the order of the pages: a tutorial's later commands use what its earlier ones wrote.
LINES = list(dict.fromkeys(shlex.join(words) for page in pages() for words in commands(page)))
ASKS = {"recipe"}
"""Commands that ask on a terminal: tests/unit/cli/test_recipe.py answers."""
RUN_HERE = [line for line in LINES if line not in ASKS and not line.startswith(tuple(ELSEWHERE))]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything as it is now, committed to `main`, with the results that pages speak of as the reader's own."""
    copy = tmp_path_factory.mktemp("pages") / "copy"
    listed = subprocess.run(
        ("git", "ls-files", "-z", "-co", "--exclude-standard"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    identity = ("-c", "user.name=docs", "-c", "user.email=docs@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "-A", "-f"), ("commit", "-q", "-m", "docs")):
        subprocess.run(("git", *identity, *words), cwd=copy, check=True)
    subprocess.run(("git", *identity, "commit", "-q", "--allow-empty", "-m", "later"), cwd=copy, check=True)
    for place in ("local", "local-ci/local"):
        shutil.copytree(copy / "results" / "reference-cpu", copy / "results" / place)
    shutil.copytree(copy / "results" / "h200" / "kernels", copy / "results" / "local-kernels")
    return copy


@pytest.mark.parametrize("line", RUN_HERE)
def test_a_command_of_a_page_runs(line: str, copy: Path) -> None:
    more = next((option for start, option in SHORTER.items() if line.startswith(start)), "")
    words = [*shlex.split(line), *(shlex.split(more) if more not in line else ())]
    done = subprocess.run(
        [sys.executable, "-m", "dsabench", *words], capture_output=True, text=True, cwd=copy, check=False, timeout=100,
        env={**os.environ, "COLUMNS": "300", "TERM": "dumb"},
    )  # fmt: skip
    lacks = any(word in line for word in LACKED)
    refused = lacks and done.returncode in {2, 3} and "Usage:" not in done.stderr
    assert done.returncode == 0 or refused, done.stdout[-600:] + done.stderr[-600:]

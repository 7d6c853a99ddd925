"""Hold every page against the program: links lead somewhere, every command runs, CI runs what the README says.

Commands run in a copy of the repository: sweeps and kernel runs with --dry-run, since they take minutes or a GPU. What
needs a server, an installed sglang or a file of the reader's is parsed, and has to say that this is what it lacks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pages() -> list[Path]:
    """Every page that a reader meets."""
    below = (page for room in ("docs", "results", "reports") for page in sorted((ROOT / room).rglob("*.md")))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *below]


def broken_links(page: Path) -> list[str]:
    """Relative links whose target is not there."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target]
    return [f"{page.relative_to(ROOT)}: no such file: {t}" for t in local if not (page.parent / t).exists()]


def commands(page: Path) -> list[list[str]]:
    """Every `dsabench …` line of the page's code blocks, without comments."""
    blocks = re.findall(r"```(?:console|bash|sh)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    uncommented = [re.sub(r"(^|\s)#.*", "", part) for part in parts]  # FILE#TRIAL is no comment
    return [shlex.split(part) for part in uncommented if re.match(r"(\S*/)?dsabench\s", part)]


LACKED = (
    *("/opt/sglang", "/opt/patched", "~/src/sglang", "PYTHON", "CONFIG", "CHECKOUT", "TABLE", "http://127.0.0.1:30000"),
    *("gsm8k_test.jsonl", "base.jsonl", "candidate.jsonl", "results/base"),
)
"""What a reader has and this machine has not."""
SHORTER = {"sweep": "--dry-run", "tune hisparse": "--dry-run", "bench": "--ready-check-timeout-sec 0"}
"""Words a command begins with, and what keeps it short here."""
ELSEWHERE = {
    "ci": "tests/e2e/test_ci.py",
    "eval": "tests/unit/evals (data sets are downloaded)",
    "kernels check": "tests/unit/dsakernels",
    "kernels bench": "tests/unit/microbench",
    "kernels twice": "tests/unit/microbench",
    "doctor": "tests/unit/doctor",
    "tune mha-threshold": "tests/e2e/test_threshold_gate.py",
}
"""Words a command begins with, and where it runs in CI: what takes long or the network, or exits by what the machine is like."""


def copy_of_repository(folder: Path) -> Path:
    """Everything as it is now, committed to `main`, with the results that pages speak of as the reader's own."""
    copy = folder / "copy"
    listed = subprocess.run(
        ("git", "ls-files", "-z", "-co", "--exclude-standard"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    shutil.copytree(copy / "results" / "reference-cpu", copy / "results" / "ci")
    identity = ("-c", "user.name=docs", "-c", "user.email=docs@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "-A", "-f"), ("commit", "-q", "-m", "docs")):
        subprocess.run(("git", *identity, *words), cwd=copy, check=True)
    subprocess.run(("git", *identity, "commit", "-q", "--allow-empty", "-m", "later"), cwd=copy, check=True)
    for place in ("local", "local-ci/local"):
        shutil.copytree(copy / "results" / "reference-cpu", copy / "results" / place)
    shutil.copytree(copy / "results" / "h200" / "kernels", copy / "results" / "local-kernels")
    return copy


def run(words: list[str], folder: Path) -> tuple[int, str]:
    """Exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "dsabench", *words], capture_output=True, text=True, cwd=folder, check=False, timeout=300,
        env={**os.environ, "COLUMNS": "300", "TERM": "dumb", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def unknown_options(words: list[str], folder: Path) -> list[str]:
    """Words or options that the program does not know."""
    path = [word for word in words[:2] if re.fullmatch(r"[a-z-]+", word)]
    for length in (2, 1, 0):
        code, said = run([*path[:length], "--help"], folder)
        if code == 0:
            break
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    problems = ["no such command"] if length == 0 and path else []
    return problems + [f"no option {option}" for option in options if option not in said]


def problems_of(words: list[str], folder: Path) -> list[str]:
    """What is wrong with a command."""
    line = shlex.join(words)
    lacked = [word for word in LACKED if any(word in of_line for of_line in words)]
    if any(line.startswith(start) for start in ELSEWHERE):
        return unknown_options(words, folder)
    more = next((option for start, option in SHORTER.items() if line.startswith(start)), "")
    code, said = run([*words, *(shlex.split(more) if more not in line else ())], folder)
    if code == 0 or (lacked and code in {2, 3} and "Usage:" not in said):
        return []
    return [f"exit code {code}: {said.strip()[-600:]}"]


def ci_differs() -> list[str]:
    """The README's test command must be what .ci/run runs."""
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    return [] if command in (ROOT / "README.md").read_text() else [f"README.md: lacks the test command: {command}"]


def main() -> int:
    """Print every problem; exit 1 when there is one."""
    problems = ci_differs() + [problem for page in pages() for problem in broken_links(page)]
    every = [(page, words[1:]) for page in pages() for words in commands(page)]
    # What takes longest first: else it runs alone at the end.
    asked = {shlex.join(words): (page, words) for page, words in sorted(every, key=lambda one: one[1][0] != "report")}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        copy = copy_of_repository(Path(folder))
        found = pool.map(lambda one: problems_of(one[1], copy), asked.values())
        for (line, (page, _)), of_line in zip(asked.items(), found, strict=True):
            problems += [f"{page.relative_to(ROOT)}: dsabench {line}: {problem}" for problem in of_line]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pages())} pages, {len(asked)} commands, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

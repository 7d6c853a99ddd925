"""Hold README and docs/ against the program: links lead somewhere, commands exist, CI runs what the README says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pages() -> list[Path]:
    """Every page that a reader meets."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
    return [shlex.split(part, comments=True) for part in parts if re.match(r"(\S*/)?dsabench\s", part)]


def unknown_options(page: Path) -> list[str]:
    """Commands whose words or options the program does not know."""
    problems = []
    for words in commands(page):
        path = [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word)]
        for length in (2, 1, 0):
            shown = subprocess.run(
                [sys.executable, "-m", "dsabench", *path[:length], "--help"],
                capture_output=True,
                text=True,
                env={"COLUMNS": "200", "TERM": "dumb", "PATH": "/usr/bin:/bin"},
                check=False,
            )
            if shown.returncode == 0:
                break
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        said = f"{page.relative_to(ROOT)}: {shlex.join(words)}"
        if length == 0 and path and path[0] not in ("--help", "--version"):
            problems.append(f"{said}: no such command")
        problems += [f"{said}: no option {o}" for o in options if o not in shown.stdout]
    return problems


def ci_differs() -> list[str]:
    """The README's test command must be what .ci/run runs."""
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    return [] if command in (ROOT / "README.md").read_text() else [f"README.md: lacks the test command: {command}"]


def main() -> int:
    """Print every problem; exit 1 when there is one."""
    problems = ci_differs()
    for page in pages():
        problems += broken_links(page) + unknown_options(page)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pages())} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Check every page against the program: links lead somewhere, commands parse, CI runs the README's test command.

`tests/e2e/test_page_commands.py` runs the commands. `python tests/check_docs.py` prints every problem and exits with 1
if there is one.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from dsabench.cli.app import app
from dsabench.cli.bench_flags import parse_flags
from dsabench.errors import InputError

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
    """Every `dsabench …` line of the page's code blocks, without comments and without its first word."""
    blocks = re.findall(r"```(?:console|bash|sh)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    uncommented = [re.sub(r"(^|\s)#.*", "", part) for part in parts]  # FILE#TRIAL is no comment
    return [shlex.split(part)[1:] for part in uncommented if re.match(r"(\S*/)?dsabench\s", part)]


def mistake_in(words: list[str]) -> str | None:
    """What the parser says against a command line; nothing is run."""
    if words[:1] == ["bench"]:
        try:
            parse_flags(words[1:])
        except InputError as error:
            return str(error)
        return None
    command = typer.main.get_command(app)
    try:
        context = command.make_context("dsabench", words)
        while isinstance(command, TyperGroup):
            rest = [*context._protected_args, *context.args]  # what a group leaves to its command
            _, command, words = command.resolve_command(context, rest)
            context = command.make_context("dsabench", words)
    except TyperException as error:
        return " ".join(error.format_message().split())
    return None


def ci_differs() -> list[str]:
    """The README's test command must be what .ci/run runs."""
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    return [] if command in (ROOT / "README.md").read_text() else [f"README.md: lacks the test command: {command}"]


def main() -> int:
    """Print every problem; exit 1 when there is one."""
    problems = ci_differs() + [problem for page in pages() for problem in broken_links(page)]
    lines = [(page, words) for page in pages() for words in commands(page)]
    for page, words in lines:
        if mistake := mistake_in(words):
            problems.append(f"{page.relative_to(ROOT)}: dsabench {shlex.join(words)}: {mistake}")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pages())} pages, {len(lines)} commands, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

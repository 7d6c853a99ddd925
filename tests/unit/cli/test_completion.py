"""The shell completes commands and options."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path


def complete(*words: str) -> list[str]:
    line = {"COMP_WORDS": " ".join(["dsabench", *words]), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-m", "dsabench"],
        env=os.environ | line | {"_DSABENCH_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert complete("sw") == ["sweep"]
    assert complete("sweep", "--max-") == ["--max-trials", "--max-boots"]


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    """The shell is found by its process, so a bash stands above the command."""
    command = shlex.join([sys.executable, "-m", "dsabench", "--install-completion"])
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit $?"],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "bash completion installed" in done.stdout
    assert list(tmp_path.rglob("dsabench.sh"))

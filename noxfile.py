"""`nox` runs every session in the environment that nox itself is in, so that torch is installed once."""

import os
import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "imports", "docs", "tests"]
nox.options.stop_on_first_error = True
nox.options.default_venv_backend = "none"

_SWEEPS = "gate_of_sweep interrupted_boots kill kill_parts patched_wheels sglang_sweep sweep sweep_that_fails tune_budget wheel"
PINNED = tuple(f"tests/e2e/test_{name}.py" for name in _SWEEPS.split())
"""Whole sweeps of which no time is judged: side by side, each on one core."""
ALONE = (
    *("tests/e2e", "tests/gpu", "tests/unit/load", "tests/unit/microbench", "tests/unit/probes", "tests/unit/runtimes"),
    *("tests/unit/search/test_refused.py", "tests/unit/test_trial.py", "tests/unit/cli/test_kernels.py"),
    *("tests/unit/cli/test_bench.py", "tests/unit/cli/test_bench_after.py", "tests/unit/cli/test_bench_void.py"),
)
"""Tests that measure time, or take cores or GPUs for themselves as a sweep does: but for those that are pinned no other
test runs beside them."""
MOST_AT_ONCE = 4


def tool(name: str) -> str:
    """A program of this environment, which need not be activated."""
    return str(Path(sys.executable).with_name(name))


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes (ruff)."""
    session.run(tool("ruff"), "check", ".")
    session.run(tool("ruff"), "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types (mypy, strict)."""
    session.run(tool("mypy"))


@nox.session
def imports(session: nox.Session) -> None:
    """Layers: who may import whom (import-linter)."""
    session.run(tool("lint-imports"))


@nox.session
def docs(session: nox.Session) -> None:
    """Links and commands of README and docs/ are real."""
    session.run(sys.executable, "tests/check_docs.py")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, against real processes and sockets (pytest); arguments go to pytest, and then nothing runs side by side."""
    if session.posargs:
        session.run(tool("pytest"), *session.posargs)
        return
    side_by_side = (tool("pytest"), "-n", str(min(MOST_AT_ONCE, os.cpu_count() or 1)), "--dist", "loadfile")
    session.run(*side_by_side, *_without(ALONE))
    session.run(*side_by_side, *PINNED, env={"DSABENCH_TESTS_PIN": "1"})
    session.run(tool("pytest"), *ALONE, *_without(PINNED))


def _without(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"--ignore={path}" for path in paths)

"""`nox` checks everything in some minutes, `nox -s full` runs every test.

All sessions run in the environment that nox itself is in, so that torch is installed once.
"""

import os
import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "imports", "docs", "tests"]
nox.options.stop_on_first_error = True
nox.options.default_venv_backend = "none"

WORKERS = min(len(os.sched_getaffinity(0)), 8)  # each worker may load torch, 0.5 GB


def tool(name: str) -> str:
    """A program of this environment, which need not be activated."""
    return str(Path(sys.executable).with_name(name))


def pytest_side_by_side(session: nox.Session, *words: str, profile: str = "ci") -> None:
    """Run pytest in several processes, each on cores of its own (tests/conftest.py)."""
    words = ("-n", str(WORKERS), "--dist", "loadscope", *words)
    session.run(tool("pytest"), *words, env={"HYPOTHESIS_PROFILE": profile})


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes (ruff; hadolint for the Dockerfile)."""
    session.run(tool("ruff"), "check", ".")
    session.run(tool("ruff"), "format", "--check", ".")
    session.run(tool("hadolint"), "Dockerfile")


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
    """Links of every page lead somewhere, its commands parse, and the site builds (MkDocs, into site/)."""
    session.run(sys.executable, "tests/check_docs.py")
    session.run(tool("mkdocs"), "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def tests(session: nox.Session) -> None:
    """Tests that are fast on any machine (pytest). Arguments go to pytest instead: `nox -s tests -- tests/unit -k journal`."""
    if session.posargs:
        session.run(tool("pytest"), *session.posargs)
    else:
        pytest_side_by_side(session, "-m", "not slow and not timing")


@nox.session
def full(session: nox.Session) -> None:
    """Every test: first side by side, then alone those that depend on how fast or quiet the machine is."""
    pytest_side_by_side(session, "-m", "not timing", profile="full")
    session.run(tool("pytest"), "-m", "timing", env={"HYPOTHESIS_PROFILE": "full"})
    session.run(tool("python"), "tests/calibration.py")

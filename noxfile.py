"""`nox` runs every session in the environment that nox itself is in, so that torch is installed once."""

import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "imports", "docs", "tests"]
nox.options.stop_on_first_error = True
nox.options.default_venv_backend = "none"


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
    """All tests, against real processes and sockets (pytest); arguments go to pytest."""
    session.run(tool("pytest"), *session.posargs)

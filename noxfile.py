"""`nox` runs every session in the environment that nox itself is in, so that torch is installed once."""

import nox

nox.options.sessions = ["lint", "types", "imports", "docs", "tests"]
nox.options.stop_on_first_error = True
nox.options.default_venv_backend = "none"


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes (ruff)."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types (mypy, strict)."""
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """Layers: who may import whom (import-linter)."""
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Links and commands of README and docs/ are real."""
    session.run("python", "tests/check_docs.py")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, against real processes and sockets (pytest); arguments go to pytest."""
    session.run("pytest", *session.posargs)

"""`dsabench WORDS…` inside the test's own process, which saves the second that a start takes.

Tests that are about processes, signals, pipes or terminals start `python -m dsabench` themselves.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from dsabench.cli.main import run


def dsabench(*words: str | Path, cwd: Path | None = None, **env: str) -> CompletedProcess[str]:
    """Run one command line in that folder and environment → exit code and what it wrote."""
    argv = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, env))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = run(argv)
    return CompletedProcess(argv, code, out.getvalue(), err.getvalue())

"""Questions to the interpreter that has sglang, behind whatever prefix or container a launch names."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import resources
from typing import Any, Literal

from dsabench.errors import InputError
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.command import enclose

MARKER = "dsabench-facts:"
"""What the line with the answer begins with: imports and login scripts may print before it."""


Wanted = Literal["identity", "pins", "parser"]


def ask(launch: Launch, wanted: Wanted, *, timeout_s: float) -> dict[str, Any]:
    """Run the text of `tell_facts.py` there (`-c`); its last line behind the marker, a JSON object.

    It sees no PYTHONPATH but the launch's own: dsabench's packages are not sglang's.

    Raises:
        InputError: the interpreter cannot be run, is silent for too long, or gives no such line.

    """
    program = resources.files(__package__).joinpath("tell_facts.py").read_text(encoding="utf-8")
    argv, env = enclose((launch.interpreter, "-c", program, wanted), {}, launch)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            argv,
            env={**inherited, **env, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise InputError(f"cannot run {argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{argv[0]} gave no answer within {timeout_s:.0f} s") from error
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(MARKER)), None)
    if line is None:
        said = next((text for text in reversed(done.stderr.splitlines()) if text.strip()), f"exit {done.returncode}")
        raise InputError(f"{argv[0]} could not tell of its sglang: {said.strip()}")
    facts: dict[str, Any] = json.loads(line.removeprefix(MARKER))
    return facts

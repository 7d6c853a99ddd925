"""What the sglang that a config names is and takes: asked of its interpreter, behind whatever prefix or container, once
per wheel, then read from a cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TextIO

from dsabench import rooms
from dsabench.errors import InputError
from dsabench.model.environment import RuntimeIdentity
from dsabench.runtimes.clients import last_words
from dsabench.runtimes.command import Launch, Lifeline, one_line
from dsabench.runtimes.keeper import END, FAR_GRACE_S
from dsabench.sglang.accepts import Accepted, accepted_of
from dsabench.sglang.images import wrap_sglang

MARKER = "dsabench-facts:"
"""What the line with the answer begins with: imports and login scripts may print before it."""

_STOP_TIMEOUT_S = 2.0
_NO_QUESTIONS = {"SSH_ASKPASS_REQUIRE": "force", "SSH_ASKPASS": "false"}
"""ssh asks nobody for a password or a host's key: the server's own ssh, which has no terminal, could not ask either."""
Wanted = Literal["identity", "pins", "parser"]


def ask(launch: Launch, wanted: Wanted, *, timeout_s: float) -> dict[str, Any]:
    """Run the text of `tell_facts.py` there (`-c`); its last line behind the marker, a JSON object.

    Raises:
        InputError: the interpreter cannot be run, is silent for too long, or gives no such line.

    """
    program = resources.files(__package__).joinpath("tell_facts.py").read_text(encoding="utf-8")
    tied = replace(launch, lifeline=Lifeline(boot=str(uuid.uuid4()), stop_timeout_s=_STOP_TIMEOUT_S))
    argv, env = wrap_sglang((launch.interpreter, "-c", one_line(program), wanted), {}, tied, host=launch.first_host)
    done = _run(argv, {**_NO_QUESTIONS, **own_environment(env)}, timeout_s)
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(MARKER)), None)
    if line is None:
        said = (
            last_words(done.stderr, done.returncode)
            or last_words(done.stdout, done.returncode)
            or f"exit {done.returncode}"
        )
        raise InputError(f"{argv[0]} could not tell of its sglang: {said}")
    facts: dict[str, Any] = json.loads(line.removeprefix(MARKER))
    return facts


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """With a launch's variables, and no PYTHONPATH but the launch's own: dsabench's packages are not sglang's."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**inherited, **env, "PYTHONSAFEPATH": "1"}


def _run(argv: tuple[str, ...], env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, with a lifeline for stdin: a client that is killed tells its far side nothing."""
    feed, lifeline = os.pipe()
    with os.fdopen(feed), os.fdopen(lifeline, "w") as line:
        try:
            process = subprocess.Popen(
                argv, env=env, stdin=feed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise InputError(f"cannot run {argv[0]}: {error.strerror}") from error
        with process:
            line.write("\n")
            line.flush()
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                said = _end(process, line)
                more = f": {said}" if said else ""
                raise InputError(f"{argv[0]} gave no answer within {timeout_s:.0f} s{more}") from error
            finally:
                if process.returncode is None:
                    _end(process, line)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _end(process: subprocess.Popen[str], lifeline: TextIO) -> str:
    """End the far side, then the client. Returns its last words, which a terminal (`ssh -tt`) has on stdout."""
    with contextlib.suppress(OSError):
        lifeline.write(END.decode())
        lifeline.close()
    try:
        out, err = process.communicate(timeout=_STOP_TIMEOUT_S + FAR_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return last_words(err, None) or last_words(out, None)


_ASK_TIMEOUT_S = 300.0
_CACHE_FORM = 1


@dataclass(frozen=True, slots=True)
class Installed:
    """The sglang behind a launch: its interpreter, container or prefix."""

    launch: Launch

    async def identity(self) -> RuntimeIdentity:
        """Version and hash, found without importing it.

        Raises:
            InputError: it cannot be run, or has no sglang.

        """
        facts = await asyncio.to_thread(self._ask, "identity")
        return RuntimeIdentity.model_validate({"kind": "sglang", **facts})

    async def accepted(self) -> Accepted:
        """Its own parser's flags, and the variables that its sources name.

        Raises:
            InputError: it cannot be run, has no sglang, or its parser cannot be made.

        """
        identity = await self.identity()
        file = _cache_file(identity.wheel_hash)
        facts = _read(file)
        if facts is None:
            facts = await asyncio.to_thread(self._ask, "parser")
            _write(file, facts)
        return accepted_of(facts, identity.version)

    def _ask(self, wanted: Wanted) -> dict[str, Any]:
        try:
            facts = ask(self.launch, wanted, timeout_s=_ASK_TIMEOUT_S)
        except InputError as error:
            raise InputError(f"runtime.launch: {error}") from error
        if facts["wheel_hash"] is None or facts["version"] is None:
            first = wrap_sglang((self.launch.interpreter,), {}, self.launch)[0][0]
            raise InputError(f"runtime.launch: {first} has no sglang; name the interpreter that has it")
        return facts


def _cache_file(wheel_hash: str) -> Path:
    return rooms.cache_folder() / f"sglang-{wheel_hash[:32]}-v{_CACHE_FORM}.json"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts


def _write(file: Path, facts: dict[str, Any]) -> None:
    """Written beside and renamed, so that nobody reads half of it. A cache that cannot be written is done without."""
    beside = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(facts), encoding="utf-8")
        beside.rename(file)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()

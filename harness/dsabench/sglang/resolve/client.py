"""Ask SGLang's argument code about command lines, in a process that imports it once (`child.py`)."""

from __future__ import annotations

import contextlib
import json
import re
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import JsonValue

from dsabench.model.environment import RuntimeIdentity
from dsabench.model.hardware import Accelerator
from dsabench.runtimes.command import Launch, one_line
from dsabench.sglang.images import wrap_sglang
from dsabench.sglang.installed import own_environment
from dsabench.sglang.models import WIDTHS
from dsabench.sglang.resolve.releases import AddedRelease

Verdict = Literal["runs", "refused", "cannot_say"]
_START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 60.0
"""Longer than the child gives a case, so that it is the child that says which one is silent."""
_END_TIMEOUT_S = 2.0
"""For the child to remove what it wrote; it ends when its stdin does."""
_UNDER_WAY = 16
"""Cases sent and not answered: few enough that neither side waits for the other with a full pipe."""
_GPUS = 8
"""How many the child pretends: what one machine has where the documents serve these models."""
WARM_MODEL = "v3.2"
"""The model of the first case, which imports what is imported late."""
_WARM = {WARM_MODEL: WIDTHS[WARM_MODEL].config_json()}
_PROGRAMS = (
    ("dsabench_stubs", "dsabench.sglang.resolve", "stubs.py"),
    ("dsabench_facts", "dsabench.sglang", "tell_facts.py"),
    ("dsabench_child", "dsabench.sglang.resolve", "child.py"),
)


@dataclass(frozen=True, slots=True)
class ArgumentCase:
    """One command line of a server."""

    argv: tuple[str, ...]
    """Behind `sglang.launch_server`."""
    env: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Words of `argv` that name a model → its config.json."""


@dataclass(frozen=True, slots=True)
class ArgumentAnswer:
    """What SGLang says to a command line."""

    verdict: Verdict
    kind: str = ""
    """Type of the exception that refuses it, `argparse` for the parser."""
    text: str = ""
    """The exception's words, or why nothing can be said."""
    at: str = ""
    """File and line that refuse it."""
    warnings: tuple[str, ...] = ()
    """What SGLang logged."""
    resolved: Mapping[str, JsonValue] = field(default_factory=dict)
    """Its fields as SGLang resolves them."""


@dataclass(frozen=True, slots=True)
class ArgumentSource:
    """An argument code, and the interpreter that runs it."""

    version: str
    wheel_hash: str
    """Equal for equal code: the key of what is remembered."""
    command: tuple[str, ...]
    """The interpreter with its options."""
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """None takes that of this process."""
    tree: Path | None = None
    """An unpacked wheel; None takes the SGLang that the interpreter imports."""
    packages: tuple[Path, ...] = ()
    """Folders behind the tree on `sys.path`."""
    launch: Launch | None = field(default=None, repr=False)
    """The prefix or container behind which the interpreter is; None for one of this machine."""


def source_of(release: AddedRelease) -> ArgumentSource:
    """An added release, run by this interpreter with nothing (-S) of what is installed beside dsabench."""
    command = (sys.executable, "-I", "-S", "-B")
    return ArgumentSource(release.version, release.sha256, command, None, release.tree, release.paths)


def source_of_launch(launch: Launch, identity: RuntimeIdentity) -> ArgumentSource | None:
    """The SGLang of the interpreter that a launch names; None behind a terminal (`ssh -tt`), which repeats what it hears."""
    if any(re.fullmatch("-t+", word) for word in launch.command_prefix):
        return None
    far = replace(launch, hands_stdin_on=True) if launch.is_elsewhere else None
    env = own_environment({} if launch.is_elsewhere else launch.env)
    return ArgumentSource(identity.version, identity.wheel_hash, (launch.interpreter, "-B"), env, launch=far)


class ArgumentProcess:
    """A process that believes in eight of one GPU and has an argument code imported; ends with `close`.

    It never raises: a process that fails is no refusal, and every answer then is `cannot_say`. Left alone for a minute it
    ends by itself.
    """

    def __init__(self, source: ArgumentSource, device: Accelerator, *, flags: bool = False) -> None:
        self.failed: str | None = None
        """Why it could not be started or asked."""
        self.flags: Mapping[str, Mapping[str, Any]] = {}
        """The parser's flags, if they were asked for."""
        self.usual: tuple[str, ...] = ()
        """What it logs of any setting."""
        self._finish: Callable[[], object] | None = None
        self._buffer = b""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `close`)
        try:
            command, env = _command(source)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            self.failed = f"{command[0]}: {error.strerror}"
            return
        self._finish = weakref.finalize(self, _end, self._process, self._errors)
        greeting = self._say(_hello(source, device, flags=flags)) or self._line(_START_TIMEOUT_S)
        if "failed" in greeting:
            self._fail(greeting["failed"])
        self.flags = greeting.get("flags", {})
        self.usual = tuple(greeting.get("usual", ()))

    @property
    def has_ended(self) -> bool:
        """Whether it cannot be asked any more."""
        return self.failed is not None or self._process.poll() is not None

    def ask(self, cases: Sequence[ArgumentCase]) -> tuple[ArgumentAnswer, ...]:
        """One answer for each case, in order."""
        answers: dict[int, ArgumentAnswer] = {}
        waiting = list(enumerate(cases))
        under_way = 0
        while self.failed is None and len(answers) < len(cases):
            while waiting and under_way < _UNDER_WAY and self.failed is None:
                number, case = waiting.pop(0)
                self._say({"id": number, **_as_json(case)})
                under_way += 1
            line = self._line(_ANSWER_TIMEOUT_S) if self.failed is None else {}
            if "id" in line:
                answers[line["id"]] = _answer(line)
                under_way -= 1
        lost = ArgumentAnswer("cannot_say", text=self.failed or "")
        return tuple(answers.get(number, lost) for number in range(len(cases)))

    def close(self) -> None:
        """End it."""
        if self._finish is not None:
            self._finish()

    def _say(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Write a line; what went wrong, if anything did."""
        assert self._process.stdin is not None
        rest = json.dumps(line).encode() + b"\n"
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) or 0 :]
        except OSError:
            return {"failed": self._fail(self._last_words())}
        return {}

    def _line(self, timeout_s: float) -> dict[str, Any]:
        """The next line of the child; where none comes, why. What a login prints before is passed over."""
        assert self._process.stdout is not None
        while True:
            while b"\n" not in self._buffer:
                ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
                chunk = self._process.stdout.read(1 << 16) if ready else b""
                if not chunk:
                    why = self._last_words() if ready else f"no answer within {timeout_s:.0f} s"
                    return {"failed": self._fail(why)}
                self._buffer += chunk
            line, _, self._buffer = self._buffer.partition(b"\n")
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found

    def _fail(self, why: str) -> str:
        self.failed = self.failed or why
        self.close()
        return self.failed

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"it ended with code {self._process.returncode}"


def _command(source: ArgumentSource) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """What starts the child, and its variables; behind a prefix it ends with its stdin, without a keeper."""
    words = (*source.command, "-c", one_line(_program()) if source.launch else _program())
    if source.launch is None:
        return words, source.env
    far, outside = wrap_sglang(words, {}, source.launch, host=source.launch.first_host)
    return far, {**(source.env or {}), **outside}


def _hello(source: ArgumentSource, device: Accelerator, *, flags: bool) -> dict[str, Any]:
    return {
        "tree": None if source.tree is None else str(source.tree),
        "packages": list(map(str, source.packages)),
        "flags": flags,
        "warm": _as_json(ArgumentCase(("--model-path", WARM_MODEL, "--tp-size", str(_GPUS)), models=_WARM)),
        "device": {
            "platform": device.platform,
            "capability": device.capability or (0, 0),
            "memory_gib": device.memory_gib,
            "name": device.device_name or device.name,
            "count": _GPUS,
        },
    }


def _end(process: subprocess.Popen[bytes], errors: IO[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    errors.close()


def _as_json(case: ArgumentCase) -> dict[str, Any]:
    return {"argv": case.argv, "env": dict(case.env), "models": dict(case.models)}


def _answer(line: Mapping[str, Any]) -> ArgumentAnswer:
    said = line.get("text", line.get("why", ""))
    warnings, resolved = tuple(line["warnings"]), line.get("resolved", {})
    return ArgumentAnswer(line["verdict"], line.get("kind", ""), said, line.get("at", ""), warnings, resolved)


def _program() -> str:
    """The programs as one text: each a module of its own, the last one runs."""
    texts = {name: resources.files(package).joinpath(file).read_text("utf-8") for name, package, file in _PROGRAMS}
    return f"""import sys, types
for name, text in {texts!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""

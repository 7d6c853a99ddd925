"""What the sglang that a config names takes: asked of it once per wheel, then read from a cache."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsabench import rooms
from dsabench.errors import InputError
from dsabench.model.environment import RuntimeIdentity
from dsabench.runtimes.command import Launch
from dsabench.sglang.accepts import Accepted, accepted_of
from dsabench.sglang.images import wrap_sglang
from dsabench.sglang.interpreter import Wanted, ask

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

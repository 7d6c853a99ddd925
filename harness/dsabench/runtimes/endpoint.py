"""The HTTP side of a server that speaks sglang's endpoints, whoever started it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue, TypeAdapter, ValidationError

from dsabench.errors import HttpFault, TrialFault, one_line
from dsabench.http import HttpAnswer, HttpClient
from dsabench.model.record import Stage
from dsabench.model.value import KnobValue

INFO_PATHS = ("/server_info", "/get_server_info")
"""Where a server tells its settings: the name of today, then the older one."""

_OBJECT = TypeAdapter(dict[str, JsonValue])
_DONE = TypeAdapter(list[Literal[True]])
_FLUSH_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL and what is asked of it."""

    base_url: str
    """Without a slash at its end."""

    async def info(self, stage: Stage, paths: tuple[str, ...] = ("/server_info",)) -> Mapping[str, JsonValue]:
        """The JSON object at the first of these paths that exists.

        Raises:
            TrialFault: no answer (unreachable), or not an object (bad_response).

        """
        for path in paths:
            answer = await self._ask("GET", path, stage)
            if answer.status == 404:
                continue
            if answer.status != 200:
                break
            try:
                return _OBJECT.validate_json(answer.body)
            except ValidationError as error:
                raise TrialFault("bad_response", f"{path}: not a JSON object", stage=stage) from error
        raise _refused(path, answer, stage)

    async def flush(self, stage: Stage) -> None:
        """Empty the prefix cache; a server refuses (400) while requests run, for which this waits up to 30 s."""
        deadline = asyncio.get_running_loop().time() + _FLUSH_TIMEOUT_S
        while True:
            answer = await self._ask("POST", "/flush_cache", stage)
            if answer.status == 200:
                return
            if answer.status != 400 or asyncio.get_running_loop().time() > deadline:
                raise _refused("/flush_cache", answer, stage)
            await asyncio.sleep(0.2)

    async def change(self, settings: Mapping[str, KnobValue], stage: Stage) -> None:
        """Change settings of the running server, under its own names.

        Raises:
            TrialFault: it does not answer (unreachable), or does not change them (bad_response).

        """
        path = "/set_internal_state"
        answer = await self._ask("POST", path, stage, {"server_args": dict(settings)})
        if answer.status != 200:
            raise _refused(path, answer, stage)
        try:
            _DONE.validate_json(answer.body)  # one answer per rank of the attention
        except ValidationError as error:
            raise TrialFault("bad_response", f"{path}: not changed: {one_line(answer.text)}", stage=stage) from error

    async def probe(self, path: str, timeout_s: float) -> str | None:
        """None when the path answers 200, else why not, in a few words."""
        try:
            answer = await HttpClient(self.base_url, timeout_s=timeout_s).get(path)
        except HttpFault as fault:
            return str(fault)
        return None if answer.status == 200 else f"HTTP {answer.status}"

    async def _ask(
        self, method: Literal["GET", "POST"], path: str, stage: Stage, body: Mapping[str, Any] | None = None
    ) -> HttpAnswer:
        client = HttpClient(self.base_url)
        try:
            return await (client.get(path) if method == "GET" else client.post(path, body))
        except HttpFault as fault:
            raise TrialFault("unreachable", f"{self.base_url}{path}: {fault}", stage=stage) from fault


def _refused(path: str, answer: HttpAnswer, stage: Stage) -> TrialFault:
    text = one_line(answer.text) or "(empty)"
    return TrialFault("bad_response", f"{path}: HTTP {answer.status}: {text}", stage=stage)

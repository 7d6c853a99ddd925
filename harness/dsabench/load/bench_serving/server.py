"""The calls around a run: is the server there, what does it serve, empty its cache, start and stop its profiler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from dsabench.errors import HttpFault, InputError, TrialFault, one_line
from dsabench.http import HttpAnswer
from dsabench.load.client.address import ask_once

_THERE = (200, 404, 405)
_NOT_YET = 503
_CALL_S = 5.0


def _found(answer: HttpAnswer | None) -> Any:
    """Its JSON; None where it has none."""
    if answer is None or answer.status != 200:
        return None
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None


class BenchControl(NamedTuple):
    """One address. The calls block: nothing else runs before and after the load."""

    base_url: str
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with every request; may hold a key, so it is never shown."""

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 30.0
    ) -> HttpAnswer:
        """Send one request.

        Raises:
            HttpFault: no whole answer.

        """
        content = b"" if body is None else orjson.dumps(body)
        return ask_once(self.base_url + path, method, content, headers=self.headers, timeout_s=timeout_s)

    def find(self, path: str, timeout_s: float = _CALL_S) -> Any:
        """GET JSON; None where the server does not have it."""
        return _found(self._get(path, timeout_s))

    def wait_until_ready(self, timeout_s: float, on_wait: Callable[[str], None] | None = None) -> None:
        """Poll /v1/models once a second; a server without that path is there too. The first failure is told to `on_wait`.

        Raises:
            TrialFault: no 200 in time.

        """
        end_s = time.perf_counter() + timeout_s
        while True:
            try:
                status = self.ask("GET", "/v1/models", timeout_s=_CALL_S).status
                problem = f"status {status}"
            except HttpFault as fault:
                status, problem = 0, str(fault)
            if status in _THERE:
                return
            if on_wait is not None:
                on_wait(f"waiting up to {timeout_s:g} s for {self.base_url} ({problem})")
                on_wait = None
            self._pause(f"/v1/models: {problem}", end_s, timeout_s)

    def info(self, timeout_s: float) -> Any:
        """`/server_info`, None where there is none. 503 is a server that is not up yet: it is asked again, once a second.

        The reference runtime names its model as soon as it listens, and its vocabulary only when its ranks are up.

        Raises:
            TrialFault: 503 to the end.

        """
        end_s = time.perf_counter() + timeout_s
        while (answer := self._get("/server_info")) is not None and answer.status == _NOT_YET and timeout_s != 0:
            self._pause(f"/server_info: status {_NOT_YET}", end_s, timeout_s)
        return _found(answer)

    def _get(self, path: str, timeout_s: float = _CALL_S) -> HttpAnswer | None:
        """None where nothing answers."""
        try:
            return self.ask("GET", path, timeout_s=timeout_s)
        except HttpFault:
            return None

    def _pause(self, problem: str, end_s: float, timeout_s: float) -> None:
        """A second until the next try, or the end of all tries."""
        if time.perf_counter() + 1.0 > end_s:
            raise TrialFault("unreachable", f"{self.base_url}{problem} (waited {timeout_s:g} s)", stage="boot")
        time.sleep(1.0)

    def first_model(self) -> str:
        """The first name in /v1/models.

        Raises:
            InputError: the server names none.
            TrialFault: nothing answers.

        """
        try:
            answer = self.ask("GET", "/v1/models", timeout_s=_CALL_S)
        except HttpFault as fault:
            raise TrialFault("unreachable", f"{self.base_url}/v1/models: {fault}", stage="boot") from fault
        match _found(answer):
            case {"data": [{"id": str(name)}, *_]}:
                return name
        raise InputError(f"--model: {self.base_url}/v1/models names none; give it")

    def tokenizer_name(self, info: object) -> str | None:
        """Where the server has its tokenizer from; `bytes` for the reference runtime. `info` is its /server_info."""
        match info:
            case {"reference": _}:
                return "bytes"
        match self.find("/model_info"):
            case {"tokenizer_path": str(path)} | {"model_path": str(path)} if path:
                return path
        return None

    def flush(self, backend: str, timeout_s: float) -> None:
        """Empty the prefix cache.

        Raises:
            TrialFault: the server refuses.

        """
        path = "/flush_cache" + (f"?timeout={quote(str(timeout_s))}" if backend.startswith("sglang") else "")
        path = "/reset_prefix_cache" if backend.startswith("vllm") else path
        self._post(path, None, timeout_s + 30.0)

    def profile(self, action: str, settings: Mapping[str, object]) -> None:
        """`start` or `stop` the server's profiler.

        Raises:
            TrialFault: the server refuses.

        """
        self._post(f"/{action}_profile", settings, 600.0)

    def _post(self, path: str, body: Mapping[str, object] | None, timeout_s: float) -> None:
        try:
            answer = self.ask("POST", path, body, timeout_s)
        except HttpFault as fault:
            raise TrialFault("unreachable", f"{self.base_url}{path}: {fault}", stage="warmup") from fault
        if answer.status != 200:
            told = f"{self.base_url}{path}: status {answer.status}: {one_line(answer.text)}"
            raise TrialFault("request_errors", told, stage="warmup")


def vocabulary_of(info: object) -> int | None:
    """Ids below it are valid; None where /server_info does not say (sglang's does not)."""
    match info:
        case {"reference": {"vocab_size": int(size)}}:
            return size
    return None


def auth_headers() -> dict[str, str]:
    """From OPENAI_API_KEY, else API_KEY, as bench_serving reads them."""
    if key := os.environ.get("OPENAI_API_KEY"):
        return {"Authorization": f"Bearer {key}"}
    if key := os.environ.get("API_KEY"):
        return {"Authorization": key}
    return {}

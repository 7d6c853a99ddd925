"""The calls around a run: is the server there, what does it serve, empty its cache, start and stop its profiler."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from threading import Event, Timer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import orjson

from dsabench.errors import InputError, TrialFault

_THERE = (200, 404, 405)
_NOT_YET = 503
_BYTES_MAX = 8 << 20


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


def _found(answer: Answer | None) -> Any:
    return answer.data if answer is not None and answer.status == 200 else None


@contextmanager
def _cut_off(connection: socket, timeout_s: float) -> Iterator[None]:
    """End the connection when the time is over, however often something trickles in: its own timeout is of one wait."""
    late = Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)

    timer = Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError(f"no whole answer within {timeout_s:g} s")


def _body(response: http.client.HTTPResponse) -> bytes:
    """All of it, up to a limit: an endless one must not fill the memory."""
    body = response.read(_BYTES_MAX + 1)
    if len(body) > _BYTES_MAX:
        raise http.client.HTTPException(f"more than {_BYTES_MAX >> 20} MiB of answer")
    if response.length:  # told in the headers, and not come
        raise http.client.IncompleteRead(body, response.length)
    return body


class BenchServer(NamedTuple):
    """One address. Blocking calls: nothing else runs before and after the load, and aiohttp would double the start."""

    base_url: str
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with every request; may hold a key, so it is never shown."""

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 30.0) -> Answer:
        """Send one request.

        Raises:
            OSError, http.client.HTTPException: no answer, or none that came to its end in time.

        """
        parts = urlsplit(self.base_url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        headers = {**self.headers, **({} if body is None else {"Content-Type": "application/json"})}
        try:
            connection.connect()
            with _cut_off(connection.sock, timeout_s):
                content = None if body is None else orjson.dumps(body)
                connection.request(method, parts.path.rstrip("/") + path, body=content, headers=headers)
                response = connection.getresponse()
                return Answer(response.status, _body(response))
        finally:
            connection.close()

    def find(self, path: str, timeout_s: float = 30.0) -> Any:
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
                status = self.ask("GET", "/v1/models", timeout_s=5).status
                problem = f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                status, problem = 0, str(error) or type(error).__name__
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

    def _get(self, path: str, timeout_s: float = 30.0) -> Answer | None:
        """None where nothing answers."""
        try:
            return self.ask("GET", path, timeout_s=timeout_s)
        except (OSError, http.client.HTTPException):
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

        """
        match self.find("/v1/models"):
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
        except (OSError, http.client.HTTPException) as error:
            raise TrialFault("unreachable", f"{self.base_url}{path}: {error}", stage="warmup") from error
        if answer.status != 200:
            text = " ".join(answer.body.decode("utf-8", "replace").split())[:200]
            raise TrialFault("request_errors", f"{self.base_url}{path}: status {answer.status}: {text}", stage="warmup")


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

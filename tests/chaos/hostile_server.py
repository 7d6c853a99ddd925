"""A server that lies, floods, trickles, breaks off and answers what no server should, in over a hundred ways.

    python tests/chaos/hostile_server.py            # every variant, one a line
    python tests/chaos/hostile_server.py VARIANT    # serve it; prints the address

Control paths (GET) are answered as a healthy server does, unless the variant's name begins with `control`. Raw sockets,
a thread per connection.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
FLOOD_BYTES = 300 * MIB
"""What a flood sends before it hangs."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Asked:
    """A request."""

    path: str
    tokens: int
    prompt: int


Pieces = Iterator[bytes | float | None]
"""What is written; a number is a pause in seconds, None the connection's reset."""
Answer = Callable[[Asked], Pieces]


@dataclass(frozen=True)
class Variant:
    """One way to answer."""

    answer: Answer
    believable: bool = False
    """Whether an answer like this may count as a success with exactly the tokens that were asked for."""
    control: bool = False
    """Whether GETs are answered so too."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


def frame(asked: Asked, count: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    """One frame as the endpoint has it; `more` goes into its counts."""
    counts = {"prompt_tokens": asked.prompt, "completion_tokens": count, **more}
    if asked.path == "/generate":
        reason = {"type": finish, "length": asked.tokens} if isinstance(finish, str) else finish
        return {
            "text": "w " * (count if isinstance(count, int) and 0 < count < 100 else 1),
            "meta_info": {**counts, "finish_reason": reason},
        }
    part = {"text": "w "} if asked.path == "/v1/completions" else {"delta": {"content": "w "}}
    return {"choices": [{"index": 0, "finish_reason": finish, **part}], "usage": counts}


def stream(asked: Asked, *frames: Any, done: bool = True) -> Pieces:
    yield HEAD
    for one in frames:
        yield chunk(event(one))
    if done:
        yield chunk(DONE)
    yield END


def honest(asked: Asked, **more: Any) -> list[dict[str, Any]]:
    last = asked.tokens
    return [frame(asked, count, "length" if count == last else None, **more) for count in range(1, last + 1)]


def counts(*values: Any, finish: Any = "length", done: bool = True, **more: Any) -> Variant:
    """A stream with these counts; a function of the tokens asked stands for a count."""

    def answer(asked: Asked) -> Pieces:
        told = [value(asked.tokens) if callable(value) else value for value in values]
        frames = [
            frame(asked, count, finish if place == len(told) - 1 else None, **more) for place, count in enumerate(told)
        ]
        return stream(asked, *frames, done=done)

    return Variant(answer)


def raw(*pieces: bytes | float | None, believable: bool = False, control: bool = False) -> Variant:
    return Variant(lambda _: iter(pieces), believable, control)


def body(data: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n") -> Variant:
    return raw(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)


def flood(head: bytes, piece: bytes, *, control: bool = False) -> Variant:
    def answer(_: Asked) -> Pieces:
        yield head
        for _ in range(FLOOD_BYTES // len(piece)):
            yield piece
        yield 60.0

    return Variant(answer, control=control)


def trickle(head: bytes, piece: bytes, pause_s: float = 0.05, *, control: bool = False) -> Variant:
    def answer(_: Asked) -> Pieces:
        yield head
        while True:
            yield piece
            yield pause_s

    return Variant(answer, control=control)


def changed(change: Callable[[bytes], bytes], *, believable: bool) -> Variant:
    """An honest stream whose body's bytes are changed."""

    def answer(asked: Asked) -> Pieces:
        data = change(b"".join(map(event, honest(asked))) + DONE)
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)

    return Variant(answer, believable)


def after(count: int, *rest: bytes | float | None) -> Variant:
    """So many honest frames, then something else."""

    def answer(asked: Asked) -> Pieces:
        yield HEAD
        for one in honest(asked)[:count]:
            yield chunk(event(one))
        yield from rest

    return Variant(answer)


def status(line: str, data: bytes = b"no", more: bytes = b"") -> Variant:
    return raw(f"HTTP/1.1 {line}\r\n".encode() + more + b"Content-Length: %d\r\n\r\n%s" % (len(data), data))


ZEROS = bytes(64 * MIB)
LIES: dict[str, Variant] = {
    "lie-8000": counts(8000),
    "lie-one-more": counts(1, lambda n: n + 1),
    "lie-falling": counts(1, 5, 3, lambda n: n),
    "lie-falls-at-the-end": counts(lambda n: n, 1),
    "lie-negative": counts(1, -8),
    "lie-1e18": counts(10**18),
    "lie-int32": counts(2**31),
    "lie-uint64": counts(2**64),
    "lie-bigger-than-any-int": counts(10**400),
    "lie-half": counts(1, 1.5),
    "lie-text": counts("8"),
    "lie-true": counts(True),
    "lie-none": counts(None),
    "lie-list": counts([8]),
    "lie-object": counts({"n": 8}),
    "lie-zero": counts(0),
    "lie-zeros": counts(0, 0, 0),
    "lie-length-early": counts(1, 2),
    "lie-done-early": counts(1, 4, finish=None),
    "lie-prompt-negative": counts(lambda n: n, prompt_tokens=-1),
    "lie-prompt-1e18": counts(lambda n: n, prompt_tokens=10**18),
    "lie-no-end": counts(1, 2, finish=None, done=False),
    "lie-abort": counts(1, 2, finish="abort"),
    "lie-reason-number": counts(1, 2, finish=7),
    "lie-reason-list": counts(1, 2, finish=["length"]),
    "lie-done-alone": Variant(stream),
    "lie-empty-object": Variant(lambda asked: stream(asked, {})),
    "lie-empty-list": Variant(lambda asked: stream(asked, [])),
    "lie-null": Variant(lambda asked: stream(asked, "null")),
    "lie-number": Variant(lambda asked: stream(asked, 8)),
    "lie-string": Variant(lambda asked: stream(asked, '"hello"')),
    "lie-no-counts": Variant(lambda asked: stream(asked, {"text": "w", "meta_info": {}, "choices": []})),
    "lie-meta-list": Variant(lambda asked: stream(asked, {"text": "w", "meta_info": [1], "choices": [1], "usage": [2]})),
    "lie-nan": Variant(lambda asked: stream(asked, json.dumps(frame(asked, 8)).replace(" 8", " NaN"))),
    "lie-infinity": Variant(lambda asked: stream(asked, json.dumps(frame(asked, 8)).replace(" 8", " Infinity"))),
    "lie-1e400": Variant(lambda asked: stream(asked, json.dumps(frame(asked, 8)).replace(" 8", " 1e400"))),
    "lie-error": Variant(lambda asked: stream(asked, {"error": {"message": "out of \x1b[2J memory\x07"}})),
    "lie-error-text": Variant(lambda asked: stream(asked, {"error": "\u202e\x00 bad"})),
    "lie-error-number": Variant(lambda asked: stream(asked, {"error": 500})),
    "lie-error-late": Variant(lambda asked: stream(asked, *honest(asked)[:2], {"error": {"message": "late"}})),
    "odd-accept-nan": Variant(lambda asked: stream(asked, *honest(asked, spec_accept_length="NaN")), believable=True),
    "odd-accept-1e308": Variant(lambda asked: stream(asked, *honest(asked, spec_accept_length=1e308)), believable=True),
    "odd-accept-negative": Variant(lambda asked: stream(asked, *honest(asked, spec_accept_length=-2)), believable=True),
    "odd-cached-negative": Variant(lambda asked: stream(asked, *honest(asked, cached_tokens=-4)), believable=True),
    "odd-cached-1e18": Variant(lambda asked: stream(asked, *honest(asked, cached_tokens=10**18)), believable=True),
    "odd-rank": Variant(lambda asked: stream(asked, *honest(asked, dp_rank=10**12)), believable=True),
    "odd-repeats": Variant(lambda asked: stream(asked, *(one for one in honest(asked) for _ in range(3))), believable=True),
    "odd-more-keys": Variant(lambda asked: stream(asked, *({**one, "\x1b[31m": ["x"] * 50} for one in honest(asked))), believable=True),
}  # fmt: skip
FLOODS: dict[str, Variant] = {
    "flood-header": flood(b"HTTP/1.1 200 OK\r\nX: ", b"y" * MIB),
    "flood-headers": flood(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 10_000),
    "flood-status-line": flood(b"HTTP/1.1 200 ", b"O" * MIB),
    "flood-interim": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
    "flood-early-hints": flood(b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 10_000),
    "flood-line": flood(PLAIN_HEAD + b"data: ", b"x" * MIB),
    "flood-body": flood(PLAIN_HEAD, b" " * MIB),
    "flood-newlines": flood(PLAIN_HEAD, b"\n" * MIB),
    "flood-comments": flood(PLAIN_HEAD, b": keep-alive\n\n" * 50_000),
    "flood-data-lines": flood(PLAIN_HEAD, b"data: x\n" * 100_000),
    "flood-empty-data": flood(PLAIN_HEAD, b"data\n" * 100_000),
    "flood-events": flood(PLAIN_HEAD, b'data: {"text": "w"}\n\n' * 40_000),
    "flood-chunks": flood(HEAD, chunk(b" " * 65536)),
    "flood-tiny-chunks": flood(HEAD, chunk(b" ") * 50_000),
    "flood-chunk-extension": flood(HEAD + b"1;", b"e" * MIB),
    "flood-trailers": flood(HEAD + b"0\r\n", b"x: " + b"y" * 65536 + b"\r\n"),
    "flood-after-done": flood(HEAD + chunk(DONE), chunk(b"x" * 65536)),
    "flood-no-http": flood(b"", b"\x00\x01\x02\x03" * 100_000),
    "flood-brackets": flood(PLAIN_HEAD + b"data: ", b"[" * MIB),
    "flood-error-body": flood(b"HTTP/1.1 500 No\r\n\r\n", b"x" * MIB),
    "big-deep-json": Variant(lambda asked: stream(asked, "[" * 200_000)),
    "big-number": Variant(lambda asked: stream(asked, "9" * 300_000)),
    "big-key": Variant(lambda asked: stream(asked, {"x" * 300_000: 1})),
    "big-error": Variant(lambda asked: stream(asked, {"error": {"message": "x" * 300_000}})),
}
TRICKLES: dict[str, Variant] = {
    "trickle-silence": raw(60.0),
    "trickle-status": trickle(b"", b"H"),
    "trickle-header": trickle(b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "trickle-headers": trickle(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
    "trickle-interim": trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trickle-body": trickle(PLAIN_HEAD, b" "),
    "trickle-line": trickle(PLAIN_HEAD + b"data: ", b"x"),
    "trickle-comments": trickle(HEAD, chunk(b": alive\n\n")),
    "trickle-chunk-size": trickle(HEAD, b"0"),
    "trickle-chunks": trickle(HEAD, chunk(b" ")),
    "trickle-length": trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "trickle-half-header": raw(b"HTTP/1.1 200 OK\r\nContent-Ty", 60.0),
    "trickle-no-done": after(3, 60.0),
    "trickle-no-end": after(99, chunk(DONE), 60.0),
}
CUTS: dict[str, Variant] = {
    "cut-at-once": raw(),
    "reset-at-once": raw(None),
    "cut-status": raw(b"HTTP/1.1 20"),
    "cut-header": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text"),
    "reset-header": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text", None),
    "cut-after-head": raw(HEAD),
    "reset-after-head": raw(HEAD, None),
    "cut-chunk-head": after(2, b"1f"),
    "cut-chunk": after(2, b"ff\r\ndata: {"),
    "cut-after-frames": after(3),
    "reset-after-frames": after(3, 0.05, None),
    "cut-before-done": after(99),
    "cut-in-event": after(2, chunk(b'data: {"text": "w')),
    "cut-in-utf8": after(2, chunk(b'data: {"text": "\xf0\x9f')),
    "cut-length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab"),
}
HTTP: dict[str, Variant] = {
    "http-ssh": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "http-tls": raw(b"\x15\x03\x01\x00\x02\x02\x28"),
    "http-nul": raw(b"\x00" * 4096),
    "http-09": raw(b"hello world"),
    "http-2": raw(b"HTTP/2 200\r\n\r\n"),
    "http-9": raw(b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    "http-html": body(b"<html>\x1b]0;title\x07</html>", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"),
    "http-status-0": status("000 No"),
    "http-status-999": status("999 No"),
    "http-status-text": status("abc No"),
    "http-status-99999": status("99999 No"),
    "http-101": status("101 Switching Protocols", b"", b"Upgrade: websocket\r\n"),
    "http-204": status("204 No Content"),
    "http-301": status("301 Moved", b"", b"Location: /generate\r\n"),
    "http-304": status("304 Not Modified", b""),
    "http-400": status("400 Bad", b"\xff\xfe\x1b[31m"),
    "http-401": status("401 No", b"", b"WWW-Authenticate: Basic\r\n"),
    "http-429": status("429 Slow", b"later", b"Retry-After: 99999999\r\n"),
    "http-500": status("500 No", b"x" * MIB),
    "http-503": status("503 Busy"),
    "http-length-negative": raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello"),
    "http-length-text": raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nhello"),
    "http-length-huge": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello"),
    "http-two-lengths": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nhello"),
    "http-length-and-chunks": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    "http-chunk-text": raw(HEAD + b"zz\r\nhello\r\n"),
    "http-chunk-negative": raw(HEAD + b"-1\r\nhello\r\n"),
    "http-chunk-huge": raw(HEAD + b"ffffffffffffffffff\r\nhello\r\n"),
    "http-chunk-no-crlf": raw(HEAD + b"5\r\nhelloXX0\r\n\r\n"),
    "http-header-space": raw(b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok"),
    "http-header-nul": raw(b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok"),
    "http-header-escape": raw(b"HTTP/1.1 200 OK\r\n\x1b[31mX: y\r\nContent-Length: 2\r\n\r\nok"),
    "http-two-answers": raw((b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") * 2),
    "http-empty": body(b""),
}  # fmt: skip
CODINGS: dict[str, Variant] = {
    f"coding-{name}": body(data, b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\n")
    for name, coding, data in (
        ("gzip-bomb", b"gzip", gzip.compress(ZEROS, 1)),
        ("deflate-bomb", b"deflate", zlib.compress(ZEROS, 1)),
        ("gzip-garbage", b"gzip", b"\x1f\x8b garbage"),
        ("br", b"br", b"\x0b\x02\x80hello\x03"),
        ("zstd", b"zstd", b"\x28\xb5\x2f\xfd"),
        ("two", b"gzip, gzip", gzip.compress(gzip.compress(b"x"))),
        ("unknown", b"\x1b[31mxyz", b"hello"),
    )
}
del ZEROS
LIE_HEAD = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")


def _said_to_be_packed(asked: Asked) -> Pieces:
    """Plain frames, each a read of its own, under a header that says gzip."""
    for part in (LIE_HEAD, *(chunk(event(one)) for one in honest(asked)), chunk(DONE), END):
        yield part
        yield 0.02


CODINGS["coding-lie"] = Variant(_said_to_be_packed)
TEXTS: dict[str, Variant] = {
    "text-crlf": changed(lambda data: data.replace(b"\n", b"\r\n"), believable=True),
    "text-cr": changed(lambda data: data.replace(b"\n", b"\r"), believable=True),
    "text-bom": changed(lambda data: b"\xef\xbb\xbf" + data, believable=True),
    "text-comments": changed(lambda data: data.replace(b"data: ", b": hi\nevent: x\nid: 1\nretry: 5\ndata: "), believable=True),
    "text-no-space": changed(lambda data: data.replace(b"data: ", b"data:"), believable=True),
    "text-no-last-newline": changed(lambda data: data[:-2], believable=True),
    "text-surrogates": changed(lambda data: data.replace(b"w ", b"\\ud800 "), believable=True),
    "text-nul": changed(lambda data: data.replace(b"w ", b"\\u0000 "), believable=True),
    "text-escape": changed(lambda data: data.replace(b"w ", b"\\u001b[2J "), believable=True),
    "text-line-separator": changed(lambda data: data.replace(b"w ", "\u2028\u2029 ".encode()), believable=True),
    "text-no-utf8": changed(lambda data: data.replace(b"w ", b"\xff\xfe "), believable=False),
    "text-latin1": changed(lambda data: data.replace(b"w ", "é ".encode("latin-1")), believable=False),
    "text-utf16": changed(lambda data: data.decode().encode("utf-16"), believable=False),
    "text-truncated-json": changed(lambda data: data.replace(b"}\n\n", b"\n\n"), believable=False),
    "text-single-quotes": changed(lambda data: data.replace(b'"', b"'"), believable=False),
    "text-trailing-comma": changed(lambda data: data.replace(b"}\n\n", b",}\n\n"), believable=False),
    "text-upper-done": changed(lambda data: data.replace(b"[DONE]", b"[done]"), believable=False),
    "text-html-in-stream": changed(lambda data: b"data: <html>\n\n" + data, believable=False),
}  # fmt: skip
CONTROL: dict[str, Variant] = {
    "control-flood": flood(b"HTTP/1.1 200 OK\r\n\r\n", b" " * MIB, control=True),
    "control-flood-header": flood(b"HTTP/1.1 200 OK\r\nX: ", b"y" * MIB, control=True),
    "control-trickle": trickle(b"HTTP/1.1 200 OK\r\n\r\n", b" ", control=True),
    "control-silence": raw(60.0, control=True),
    "control-cut": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", control=True),
    "control-reset": raw(None, control=True),
    "control-no-http": raw(b"\x1b[2J\x07 hello\r\n\r\n", control=True),
    "control-deep-json": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, control=True),
    "control-not-an-object": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", control=True),
    "control-lists": raw(
        b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"data": [1, null, "\\u001b"]}'[:-2], control=True
    ),
}
VARIANTS = LIES | FLOODS | TRICKLES | CUTS | HTTP | CODINGS | TEXTS | CONTROL
HEALTHY = Variant(lambda asked: stream(asked, *honest(asked)), believable=True)


@contextmanager
def hostile_server(variant: Variant) -> Iterator[str]:
    """Its address."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=_serve, args=(listening.accept()[0], variant), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _serve(connection: socket.socket, variant: Variant) -> None:
    with connection, suppress(OSError):
        while (request := _read(connection)) is not None:
            method, path, content = request
            if method == "GET" and not variant.control:
                _tell(connection, path)
            elif path.startswith(("/flush_cache", "/start_profile", "/stop_profile")) and not variant.control:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                _write(connection, variant.answer(_asked(path, content)))
                return


def _read(connection: socket.socket) -> tuple[str, str, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(1 << 16)):
            return None
        data += more
    head, _, content = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(content) < sum(lengths):
        if not (more := connection.recv(1 << 16)):
            return None
        content += more
    method, path, _ = head.split(b" ", 2)
    return method.decode(), path.decode(), content


def _asked(path: str, content: bytes) -> Asked:
    try:
        request = json.loads(content or b"{}")
    except ValueError:
        request = {}
    tokens = request.get("sampling_params", {}).get("max_new_tokens") or request.get("max_tokens")
    return Asked(path, tokens or request.get("max_completion_tokens") or 8, len(request.get("input_ids") or "x"))


def _tell(connection: socket.socket, path: str) -> None:
    told: dict[str, Any] = {"model_path": "m", "version": "0.5.16", "internal_states": [{}], "max_req_input_len": 4096}
    if path.startswith("/v1/models"):
        told = {"data": [{"id": "m", "object": "model", "max_model_len": 4096}]}
    data = json.dumps(told).encode()
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)
    )


def _write(connection: socket.socket, pieces: Pieces) -> None:
    for piece in pieces:
        if piece is None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if isinstance(piece, float):
            _wait(connection, piece)
        else:
            connection.sendall(piece)


def _wait(connection: socket.socket, pause_s: float) -> None:
    """A pause, or until the client is gone."""
    connection.settimeout(pause_s)
    with suppress(TimeoutError):
        if not connection.recv(1 << 16):
            raise ConnectionError
    connection.settimeout(None)


def main(names: Sequence[str]) -> None:
    if not names:
        print(*VARIANTS, sep="\n")
        return
    with hostile_server({**VARIANTS, "healthy": HEALTHY}[names[0]]) as url:
        print(url, flush=True)
        time.sleep(1e9)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1:])

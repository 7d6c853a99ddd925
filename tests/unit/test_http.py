"""The one HTTP client against servers that lie, flood, trickle and break off."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dsabench.errors import HttpFault, StoreError
from dsabench.http import EVENT_BYTES_MAX, HttpClient, SseReader, accepts_connections, download, events
from unit.cli.bad_server import bad_server

OK = b"HTTP/1.1 200 OK\r\n"
Answer = Callable[[socket.socket], object]


def says(*parts: bytes) -> Answer:
    return lambda connection: [connection.sendall(part) for part in parts]


def forever(head: bytes, again: bytes, pause_s: float = 0.0) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(again)
            time.sleep(pause_s)

    return answer


FAULTS: dict[str, tuple[Answer, str, str]] = {
    "flood": (forever(OK + b"\r\n", b" " * 65536), "too_large", "more than 8 MiB of answer"),
    "trickle": (forever(OK + b"\r\n", b" ", 0.05), "timeout", "no whole answer within 1 s"),
    "slow head": (forever(OK, b"x", 0.05), "timeout", "no whole answer within 1 s"),
    "slow headers": (forever(OK, b"x: y\r\n", 0.05), "timeout", "no whole answer within 1 s"),
    "silence": (forever(b"", b"", 0.05), "timeout", "no whole answer within 1 s"),
    "long header": (forever(OK + b"x: ", b"y" * 65536), "broken", "more than"),
    "endless headers": (forever(OK, b"x: y\r\n" * 4096), "broken", ""),
    "big head": (says(OK, *(b"x: " + b"y" * 8000 + b"\r\n" for _ in range(20)), b"\r\n"), "too_large", "64 KiB"),
    "gzip": (
        says(OK + b"Content-Encoding: deflate\r\n\r\n", zlib.compress(bytes(1 << 20))),
        "broken",
        "a compressed answer (deflate)",
    ),
    "cut": (says(OK + b"Content-Length: 10\r\n\r\n123"), "broken", "received 3 of 10 bytes"),
    "cut chunk": (says(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12"), "broken", "cut off"),
    "bad chunk": (says(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n12"), "broken", ""),
    "no HTTP": (says(b"\x16\x03\x01\x00 hello"), "broken", ""),
    "nothing": (says(b""), "broken", "disconnected"),
    "control characters": (says(b"HTTP/1.1 200 OK\r\n\x1b]0;title\x07: y\r\n\r\n"), "broken", ""),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_bad_answer_is_a_fault_of_its_kind_and_in_time(name: str) -> None:
    answer, kind, words = FAULTS[name]
    with bad_server(answer) as url:
        began_s = time.perf_counter()
        with pytest.raises(HttpFault) as caught:
            await HttpClient(url, timeout_s=1.0).get("/x")
    assert time.perf_counter() - began_s < 3.0
    assert (caught.value.kind, words in str(caught.value)) == (kind, True), str(caught.value)
    assert str(caught.value).isprintable()


async def test_nobody_there_and_no_address() -> None:
    with pytest.raises(HttpFault, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused") as caught:
        await HttpClient("http://127.0.0.1:1").get("/x")
    assert caught.value.kind == "refused"
    for url in ("http://127.0.0.1:99999", "nonsense", "http://"):
        with pytest.raises(HttpFault):
            await HttpClient(url).get("/x")
        assert not await accepts_connections("http://127.0.0.1:1")


async def test_any_status_is_an_answer_and_no_redirect_is_followed() -> None:
    with bad_server(says(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno")) as url:
        answer = await HttpClient(url).post("/x", {"a": 1})
    assert (answer.status, answer.text) == (302, "no")


async def test_a_pause_inside_an_answer_has_its_own_limit() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        time.sleep(2)

    heard: list[bytes] = []

    async def listen(url: str) -> None:
        async with HttpClient(url, timeout_s=10, idle_timeout_s=0.3).stream("GET", "/x") as stream:
            async for data in stream.events():
                heard.append(data)  # noqa: PERF401  (what came before the fault is kept)

    with bad_server(answer) as url, pytest.raises(HttpFault, match=r"nothing came for 0\.3 s"):
        await listen(url)
    assert heard == [b"1"]


async def test_connections_are_kept_and_a_left_answer_closes_its_own() -> None:
    peers: list[object] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        while (head := await reader.readuntil(b"\r\n\r\n")) and b"/stop" not in head:
            writer.write(OK + b"Content-Length: 2\r\n\r\nok")
        writer.write(OK + b"Content-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        peers.append(await reader.read())  # returns when the client closes
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with HttpClient(url, timeout_s=5).keep_connections() as client:
            for _ in range(3):
                assert (await client.get("/x")).body == b"ok"
            assert len(peers) == 1
            async with client.stream("GET", "/stop") as stream:
                async for data in stream.events():
                    assert data == b"1"
                    break
            async with asyncio.timeout(2):
                while peers[-1] != b"":
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("piece", [b"x" * 65536, b"data: " + b"x" * 65536 + b"\n", b"data\n" * 4096])
def test_an_event_has_an_end(piece: bytes) -> None:
    read = 0

    def reads():
        nonlocal read
        while read < 4 * EVENT_BYTES_MAX:
            read += len(piece)
            yield 0.0, piece

    with pytest.raises(HttpFault, match="an event of more than 16 MiB"):
        list(events(reads()))
    assert read <= EVENT_BYTES_MAX + 2 * len(piece)


def test_long_streams_of_short_events_have_no_end_of_their_own() -> None:
    reader, event = SseReader(), b"data: " + b"x" * 1000 + b"\n\n"
    assert sum(len(list(reader.feed(0.0, event * 1000 + b"data: "[: i % 5]))) for i in range(40)) > 30_000


async def test_a_download_is_whole_checked_and_noted(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    whole = says(OK + b"Content-Length: %d\r\n\r\n" % len(data), data)
    found = hashlib.sha256(data).hexdigest()
    file, note = tmp_path / "deep" / "data", tmp_path / "deep" / "note"
    with bad_server(whole) as url:
        await download(url, file, sha256=found, note=note)
        assert (file.read_bytes(), note.read_text()) == (data, found + "\n")
        for more, kind in (({"sha256": "0" * 64}, "changed"), ({"bytes_max": 1000}, "too_large")):
            with pytest.raises(HttpFault) as caught:
                await download(url, tmp_path / "other", **more)
            assert caught.value.kind == kind
        with pytest.raises(StoreError, match=r"below: (File exists|Not a directory)"):
            await download(url, file / "below")
    absent = says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    with bad_server(absent) as url, pytest.raises(HttpFault, match="HTTP 404"):
        await download(url, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "deep", "note"]

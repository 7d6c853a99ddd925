"""1,319 requests in flight against a server whose every answer takes two seconds: wall time and memory of the client.

`python tests/eval_in_flight.py [--requests 1319] [--delay-s 2]` prints one JSON object. The server is a plain asyncio
protocol in a process of its own and says when its last answer was due; only the child that runs `dsabench eval` is
measured. Wall time counts from the first question sent to the last sample on disk, so the bound is one delay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_EVENTS = (
    b'data: {"choices": [{"index": 0, "text": "The answer", "finish_reason": null}]}\n\n'
    b'data: {"choices": [{"index": 0, "text": " is 18.", "finish_reason": "stop"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}\n\n'
    b"data: [DONE]\n\n"
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(_EVENTS) + _EVENTS
_MODELS = b'{"data": [{"id": "paced"}]}'
_LISTED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_MODELS) + _MODELS
_ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Paced(asyncio.Protocol):
    """One connection; an answer leaves `delay_s` after its request was whole."""

    delay_s = 2.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        line, *fields = head.split(b"\r\n")
        lengths = [int(field[15:]) for field in fields if field.lower().startswith(b"content-length:")]
        if len(body) < sum(lengths):
            return
        self.buffer = b""
        if line.startswith(b"POST"):
            asyncio.get_running_loop().call_later(self.delay_s, self.transport.write, _ANSWER)
        else:
            self.transport.write(_LISTED if b"/v1/models" in line else _ABSENT)


async def serve(delay_s: float) -> None:
    Paced.delay_s = delay_s
    server = await asyncio.get_running_loop().create_server(Paced, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def write_questions(path: Path, count: int) -> None:
    rows = ({"question": f"Case {i}: what is {i} plus 18?", "answer": f"#### {i + 18}"} for i in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def measure(folder: str, url: str, requests: int, delay_s: float) -> dict[str, float]:
    data = Path(folder) / "data.jsonl"
    write_questions(data, requests)
    words = [sys.executable, "-m", "dsabench", "eval", "gsm8k", "--base-url", url, "--data", str(data), "--json"]
    words += ["--num-shots", "8", "--parallel", str(requests), "--no-html"]
    started_s = time.perf_counter()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    whole_s = time.perf_counter() - started_s
    said = json.loads(done.stdout)
    assert (said["n"], said["n_failed"], said["retries"]) == (requests, 0, 0), said
    return {
        "requests": requests,
        "schedule_s": delay_s,
        "asking_s": round(said["latency_s"], 3),
        "share_of_schedule": round(said["latency_s"] / delay_s, 3),
        "whole_command_s": round(whole_s, 3),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1319)
    parser.add_argument("--delay-s", type=float, default=2.0)
    parser.add_argument("--serve", action="store_true", help="only serve")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.delay_s))
    words = [sys.executable, __file__, "--serve", "--delay-s", str(args.delay_s)]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            print(json.dumps(measure(folder, server.stdout.readline().strip(), args.requests, args.delay_s)))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

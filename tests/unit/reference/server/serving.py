"""Real servers on free ports, and a client of twenty lines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[4]
MHA = "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"
TABLES = "SGLANG_DSA_CONFIG_DIR"
_OURS = {MHA, TABLES}


def environment(**extra: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
    paths = (str(ROOT / "harness"), str(ROOT / "kernels"), os.environ.get("PYTHONPATH"))
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **extra}


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "dsabench.reference.launch_server", *flags]


@dataclass
class Server:
    """A running server and its log."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""

    def get(self, path: str, timeout: float = 60) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.url + path), timeout)

    def post(self, path: str, body: object, timeout: float = 60) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.url + path, data=data), timeout)

    def generate(self, prompt, new=4, **sampling):
        key = "text" if isinstance(prompt, str) else "input_ids"
        params = {"max_new_tokens": new, "temperature": 0, "ignore_eos": True, **sampling}
        status, text = self.post("/generate", {key: prompt, "sampling_params": params})
        assert status == 200, text
        return json.loads(text)

    def frames(self, body: dict) -> list[dict]:
        request = urllib.request.Request(self.url + "/generate", data=json.dumps({**body, "stream": True}).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            events = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        assert events.pop() == b"[DONE]"
        return [json.loads(event) for event in events]

    def info(self) -> dict:
        return json.loads(self.get("/server_info")[1])

    def counters(self) -> dict:
        return self.info()["reference"]["counters"]

    def stop(self) -> int:
        """SIGTERM; returns the exit code. A server that does not end is killed, and that is an error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    @staticmethod
    def _ask(request: urllib.request.Request, timeout: float) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextlib.contextmanager
def serving(
    *flags: str,
    model: str = "tiny",
    wait: bool = True,
    ready_s: float = 60,
    argv: list[str] | None = None,
    **env: str,
):
    """Start a server on a free port, stop it at the end."""
    argv = argv or command("--model", model, "--port", "0", "--cpu-threads", "1", *flags)
    with subprocess.Popen(argv, env=environment(**env), stderr=subprocess.PIPE, text=True) as process:
        server = Server(process)
        reader = threading.Thread(target=_collect, args=(server,))
        reader.start()
        try:
            found = _wait_for(server, r"Listening on (http://\S+)", ready_s)
            server.url = found.group(1)
            if wait:
                _wait_for(server, "ready to roll", ready_s)
            yield server
        finally:
            server.stop()
            reader.join(5)


def _collect(server: Server) -> None:
    for line in server.process.stderr:
        server.lines.append(line)


def _wait_for(server: Server, pattern: str, timeout_s: float) -> re.Match[str]:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for line in tuple(server.lines):
            if found := re.search(pattern, line):
                return found
        if server.process.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError("".join(server.lines))

"""Real programs to put under supervision, and ways to see what is left of them."""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil

from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import Deployment, ServerProgram, run_deployment
from dsabench.runtimes.plan import LaunchPlan, PlannedProcess
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.supervisor import Command

MARK = "DSABENCH_TEST_FAMILY"
PRELUDE = """
import http.server, os, signal, subprocess, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    status = 200
    def do_GET(self):
        body = b'{"version": "1"}'
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *args):
        pass

def listen(port=None):
    http.server.ThreadingHTTPServer.allow_reuse_address = True
    return http.server.ThreadingHTTPServer(("127.0.0.1", int(port or sys.argv[1])), Handler)

def child(code, **options):
    return subprocess.Popen([sys.executable, "-S", "-c", code], **options)

def hang():
    while True:
        time.sleep(1000)
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


@dataclass(frozen=True)
class Workshop:
    """Makes programs; every process that a test starts is found by a mark in its environment."""

    folder: Path
    family: str

    def script(self, body: str) -> Path:
        file = self.folder / f"program-{uuid.uuid4().hex[:6]}.py"
        file.write_text(PRELUDE + body)
        return file

    def command(self, body: str, *args: str, **changes: object) -> Command:
        fields: dict[str, object] = {
            "argv": (sys.executable, "-S", str(self.script(body)), *args),
            "cwd": self.folder,
            "log": self.folder / "server.log",
            "boot": str(uuid.uuid4()),
            "stop_timeout_s": 5.0,
        }
        return Command(**{**fields, **changes})  # type: ignore[arg-type]

    def alive(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.family and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def wait(self, condition: Callable[[], object], timeout_s: float = 60.0) -> float:
        """Seconds until the condition held."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < timeout_s, f"still alive: {self.alive()}"
            time.sleep(0.01)
        return time.monotonic() - begun

    def wait_gone(self, timeout_s: float = 60.0) -> float:
        return self.wait(lambda: not self.alive(), timeout_s)


def boot(argv: Callable[[int], tuple[str, ...]], place: Place, **env: str) -> AbstractAsyncContextManager[Deployment]:
    """Serve with one program that is told its port."""

    def plan(launch: Launch) -> LaunchPlan:
        port = launch.sites["server"].port
        assert isinstance(port, int)
        return LaunchPlan((PlannedProcess("server", 0, 0, argv(port), env, term_all=True),), ())

    spec = RuntimeSpec(kind="reference", model="a-program")
    return run_deployment(spec, ServerProgram(plan), Launch(), place)

"""What `dsabench bench` does after the run: warnings of void numbers, and the picture."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from dsabench.cli.main import run
from unit.cli.bench_server import BenchServerThread

WORDS = [
    *("bench", "--dataset-name", "random-ids", "--tokenize-prompt", "--vocab-size", "100", "--random-input-len", "8"),
    *("--random-output-len", "9", "--num-prompts", "24", "--max-concurrency", "2", "--disable-tqdm"),
]


class Restarting(BenchServerThread):
    """Another process from the tenth request on."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/server_info":
            return web.json_response({"random_seed": 1 if self.generated < 10 else 2})
        return await super()._answer(request)


def test_a_restart_voids_the_numbers_and_the_line_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.jsonl"
    with Restarting() as server:
        assert run([*WORDS, "--base-url", server.url, "--output-file", str(file)]) == 3
    assert "the server restarted during the run" in capsys.readouterr().err
    assert json.loads(file.read_text())["completed"] == 24


def test_a_reader_that_went_away_loses_no_measurement(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    reading, writing = os.pipe()
    os.close(reading)
    with BenchServerThread() as server, os.fdopen(writing, "wb") as stdout:
        words = [*WORDS, "--base-url", server.url, "--output-file", str(file)]
        subprocess.run([sys.executable, "-u", "-m", "dsabench", *words], stdout=stdout, check=True)
    assert json.loads(file.read_text())["completed"] == 24


@dataclass
class Held(BenchServerThread):
    """Answers the warm-up, and no request after it before `released`."""

    released: threading.Event = field(default_factory=threading.Event)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        while request.path == "/generate" and self.generated > 0 and not self.released.is_set():
            await asyncio.sleep(0.01)
        return await super()._answer(request)


def test_a_terminal_sees_how_far_it_is_before_the_first_answer(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    ours, theirs = os.openpty()
    said = ""
    with Held() as server:
        words = [*WORDS[:-1], "--max-concurrency", "24", "--base-url", server.url, "--output-file", str(file)]
        argv = [sys.executable, "-m", "dsabench", *words]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs) as child:
            os.close(theirs)
            try:
                while not re.search(r"\r0/24 requests, \d+ s\x1b\[K", said):
                    said += os.read(ours, 65536).decode()
                server.released.set()
                with suppress(OSError):  # the other side is closed
                    while True:
                        said += os.read(ours, 65536).decode()
                assert child.wait(60) == 0
            finally:
                child.kill()
                server.released.set()
    os.close(ours)
    assert "\r24/24 requests\x1b[K" in said
    assert json.loads(file.read_text())["completed"] == 24


def test_a_picture_of_the_run(tmp_path: Path) -> None:
    file, picture = tmp_path / "out.jsonl", tmp_path / "run.svg"
    with BenchServerThread() as server:
        assert run([*WORDS, "--base-url", server.url, "--output-file", str(file), "--plot", str(picture)]) == 0
    assert '<rect class="steady"' in picture.read_text()  # twenty-four requests, two at a time, have a steady state

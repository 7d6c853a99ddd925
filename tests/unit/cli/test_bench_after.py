"""What `dsabench bench` does after the run: warnings of void numbers, and the picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def test_a_picture_of_the_run(tmp_path: Path) -> None:
    file, picture = tmp_path / "out.jsonl", tmp_path / "run.svg"
    with BenchServerThread() as server:
        assert run([*WORDS, "--base-url", server.url, "--output-file", str(file), "--plot", str(picture)]) == 0
    assert picture.read_text().startswith("<?xml")
    assert "#e8e8e8" in picture.read_text()  # twenty-four requests, two at a time, have a steady state
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")

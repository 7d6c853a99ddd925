"""Output that cannot be written, or not as it is: one line or none, and never the exit code of a gate that failed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from unit.cli.bad_server import bad_server

ROOT = Path(__file__).parents[3]
COMPARE = "compare results/h200/auto/shipped results/h200/auto/patched --across-environments"
COMMANDS = ("--help", "--version", "results list --results results/reference-cpu", COMPARE, f"{COMPARE} --json")


def argv(words: str) -> list[str]:
    return [sys.executable, "-m", "dsabench", *words.split()]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_below_the_output_is_one_line(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv(words), stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (3, "error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_reader_that_went_away_is_no_failed_gate(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(argv(words), stdout=gone, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_with_ascii_only_loses_characters_and_nothing_else() -> None:
    done = subprocess.run(
        argv(COMPARE), capture_output=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b" % ? " in done.stdout
    assert done.stdout.isascii()


def test_what_a_server_sent_is_no_command_to_the_terminal() -> None:
    def answer(connection: socket.socket) -> None:
        body = b"data: \x1b[2J\x1b]0;title\x07 no json\n\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with bad_server(answer) as url:
        words = f"bench --base-url {url} --model m --dataset-name random-ids --num-prompts 1 --tokenize-prompt"
        words += " --vocab-size 9 --random-input-len 4 --random-output-len 4"
        done = subprocess.run(argv(words), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "[2J" in done.stderr
    assert not set(done.stderr) & {"\x1b", "\x07"}


def test_a_title_takes_the_width_of_the_terminal_not_of_its_table() -> None:
    words = argv("sweep h200-hisparse-table --dry-run")
    environment = {**os.environ, "COLUMNS": "60"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.stdout.splitlines()[0] == "h200-hisparse-table: 1 setting × 1 workload"

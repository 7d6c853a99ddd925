"""`dsabench doctor` as a person runs it, against the embedded reference server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from closed_port import nobody_listens
from program import dsabench
from unit.doctor.servers import Character
from unit.doctor.servers import serving as serving_doctor
from unit.reference.server.serving import environment, serving


def doctor(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return dsabench("doctor", *words, cwd=cwd, COLUMNS="200", **env)


@pytest.fixture(scope="module")
def server():
    with serving("--kv-cache-dtype", "fp8_e4m3") as running:
        yield running


def test_the_reference_server_is_well(server, tmp_path) -> None:
    done = doctor("--base-url", server.url, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    found = {one["check"]: one for one in report["findings"]}
    assert set(found) == {
        "open files",
        "server",
        "chat template",
        "openai client",
        "speculative decoding",
        "thinking",
        "tool calls",
    }
    assert found["server"]["line"].endswith("serves tiny")
    assert found["chat template"]["verdict"] == "ok"
    assert found["speculative decoding"]["line"] == "off"
    assert "random weights" in found["tool calls"]["line"]
    assert report["problems"] == 0


def test_for_people_a_line_each_and_the_fix_below(server, tmp_path) -> None:
    done = doctor("--base-url", server.url, cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    off = next(number for number, line in enumerate(lines) if line.startswith("warning speculative decoding"))
    assert "→ add to the server's command: --speculative-algorithm EAGLE" in lines[off + 1]
    assert lines[-1].startswith("7 checks: 0 problems")


def test_a_server_that_is_not_there_is_a_problem(tmp_path) -> None:
    with nobody_listens() as url:
        done = doctor("--base-url", url, "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"] == 1


def test_this_machine(tmp_path) -> None:
    done = doctor("--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    checks = [one["check"] for one in report["findings"]]
    assert {"gpu", "open files", "locked memory", "shared memory", "disk", "ports", "sglang"} <= set(checks)
    assert done.returncode == (1 if report["problems"] else 0)


@pytest.mark.parametrize("hardware", ["mi300x", "mi325x", "gfx950-288gib"])
def test_a_config_says_what_is_started(tmp_path, hardware: str) -> None:
    text = "name: mine\nruntime: {kind: sglang, model: /no/such/folder, hardware: HARDWARE, launch: {python: PYTHON}}\n"
    text = text.replace("PYTHON", sys.executable).replace("HARDWARE", hardware)
    (tmp_path / "mine.yaml").write_text(text)
    done = doctor("mine.yaml", "--json", cwd=tmp_path, HF_HOME=str(tmp_path))
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert found["sglang"]["verdict"] == "problem"
    assert found["model"]["verdict"] == "warning"
    amd = Path("/dev/kfd").exists()
    assert found["gpu"]["verdict"] == ("ok" if amd else "problem")
    assert "/dev/kfd" in found["gpu"]["line"]


def test_random_weights_take_no_disk(tmp_path) -> None:
    text = "name: mine\nruntime: {kind: sglang, model: v3.2, base: {load_format: dummy}, launch: {python: PYTHON}}\n"
    (tmp_path / "mine.yaml").write_text(text.replace("PYTHON", sys.executable))
    done = doctor("mine.yaml", "--json", cwd=tmp_path)
    assert "model" not in {one["check"] for one in json.loads(done.stdout)["findings"]}


@pytest.mark.slow
async def test_on_a_terminal_it_says_what_it_waits_for_and_elsewhere_nothing(tmp_path) -> None:
    slow = Character(thought=None, content="words ", repeats=1000, pause_s=0.02)
    (quiet, quiet_end), (shown, shown_end) = os.openpty(), os.openpty()
    async with serving_doctor(slow.application()) as url:
        words = ("--base-url", url, "--question-timeout", "1.5")
        piped, as_json, on_terminal = await asyncio.gather(
            _told_on_stderr(*words, cwd=tmp_path),
            _told_on_stderr(*words, "--json", cwd=tmp_path, stderr=quiet_end),
            _told_on_stderr(*words, cwd=tmp_path, stderr=shown_end),
        )
    os.close(quiet_end)
    os.close(shown_end)
    assert piped == (0, b"")
    assert (as_json[0], _read_all(quiet)) == (0, b"")
    assert on_terminal[0] == 0
    told = _read_all(shown).decode()
    assert "thinking" in told
    assert "0:00:01" in told


async def _told_on_stderr(*words: str, cwd: Path, stderr: int = subprocess.PIPE) -> tuple[int | None, bytes]:
    """Exit code and, through a pipe, what stands on stderr."""
    command = (sys.executable, "-m", "dsabench", "doctor", *words)
    env = environment(COLUMNS="200", TERM="xterm-256color")
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=stderr)
    async with asyncio.timeout(60):
        _, told = await process.communicate()
    return process.returncode, told or b""


def _read_all(terminal: int) -> bytes:
    """What was written to a terminal whose other side is closed."""
    told = b""
    with os.fdopen(terminal, "rb", buffering=0) as file, suppress(OSError):
        while part := file.read(65536):
            told += part
    return told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--base-url", "localhost"), "write http://HOST:PORT"),
        (("--python", "/no/such/python"), "cannot run /no/such/python"),
        (("no-such-config",), "no-such-config"),
        (("--question-timeout", "0", "--base-url", "http://127.0.0.1:9"), "--question-timeout"),
        (("--timeout", "never", "--base-url", "http://127.0.0.1:9"), "--timeout"),
    ],
)
def test_wrong_questions_end_in_one_line(words, said, tmp_path) -> None:
    done = doctor(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_output_without_colour_in_a_pipe(tmp_path) -> None:
    assert "\x1b" not in doctor(cwd=tmp_path, TERM=os.environ.get("TERM", "xterm-256color")).stdout

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from dsabench.runtimes.faults import Ending, fault_of_ending, fault_of_start, read_tail, redact


@pytest.mark.parametrize(
    ("ending", "log", "kind", "message"),
    [
        (Ending(code=2), "x: error: no\nbye", "illegal_config", "no"),
        (Ending(code=2), "just a line", "illegal_config", "just a line"),
        (Ending(code=2), "", "illegal_config", "exited with code 2 and said nothing"),
        (Ending(code=2), "python: can't open file 'x'", "missing_file", "python: can't open file 'x'"),
        (
            Ending(code=2),
            "error: port: address already in use",
            "illegal_config",
            "port: address already in use",
        ),
        (Ending(code=1), "No module named sglang", "missing_file", "No module named sglang"),
        (Ending(code=1), "[Errno 98] Address already in use", "port_in_use", "[Errno 98] Address already in use"),
        (Ending(code=1), "torch.OutOfMemoryError: CUDA", "out_of_memory", "torch.OutOfMemoryError: CUDA"),
        (Ending(code=1), "OSError: [Errno 28] No space left on device", "disk_full", None),
        (Ending(code=1), "ValueError: x", "exited", "exited with code 1: ValueError: x"),
        (Ending(code=0), "", "exited", "exited with code 0"),
        (Ending(code=137), "", "killed", "killed from outside by SIGKILL"),
        (Ending(signal=9), "", "killed", "killed from outside by SIGKILL"),
        (Ending(signal=9, oom_killed=True), "", "out_of_memory", "killed by the kernel, which was out of memory"),
        (Ending(signal=9), "CUDA out of memory", "out_of_memory", "CUDA out of memory"),
        (Ending(signal=11), "last", "exited", "crashed with SIGSEGV: last"),
        (Ending(signal=40), "", "exited", None),
        (Ending(), "", "killed", "its keeper was killed from outside"),
    ],
)
def test_endings(ending: Ending, log: str, kind: str, message: str | None) -> None:
    fault = fault_of_ending(ending, log, "boot")
    assert fault.kind == kind
    assert message is None or fault.message == message
    assert fault.transient == (kind in {"killed", "port_in_use"})
    assert "\n" not in fault.message


def test_starts() -> None:
    assert fault_of_start("log", errno.ENOSPC, "").kind == "disk_full"
    assert fault_of_start("exec", errno.ENOENT, "x").message == "cannot run x: No such file or directory"
    assert fault_of_start("cores", errno.EINVAL, "").kind == "illegal_config"


def test_signal_names_are_those_of_signals() -> None:
    assert signal.Signals(9).name == "SIGKILL"


def test_tail_is_short_and_clean(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [f"line {i}" for i in range(100)]
    log.write_bytes(
        b"\n".join(line.encode() for line in lines) + b"\n\x1b[31mred\x1b[0m\n 10%\r 50%\r 100%\n\xff\x00end\n"
    )
    tail = read_tail(log, start=0, env={}).splitlines()
    assert tail[-3:] == ["red", " 100%", "\ufffdend"]
    assert len(tail) <= 40
    assert read_tail(log, start=log.stat().st_size, env={}) == ""
    assert read_tail(tmp_path / "none", start=0, env={}) == ""


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DB_PASSWORD", "api_key", "TOKENS"]
)
def test_secret_names(name: str) -> None:
    assert redact("a s3cr3t b", {name: "s3cr3t"}) == f"a <{name}> b"


@pytest.mark.parametrize(
    ("name", "value"), [("TOKENIZERS_PARALLELISM", "false"), ("KEYBOARD", "us-intl"), ("X_KEY", "1"), ("X_KEY", "")]
)
def test_plain_names_and_values(name: str, value: str) -> None:
    assert redact("false us-intl 1", {name: value}) == "false us-intl 1"


def test_longer_secret_first() -> None:
    assert redact("abcdef", {"A_KEY": "abc", "B_KEY": "abcdef"}) == "<B_KEY>"

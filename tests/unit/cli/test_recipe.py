"""`dsabench recipe`: the cookbook's choices as flags or answers, and the command that they give."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_launch


def recipe(*words: str) -> int:
    return run(["recipe", *words])


def test_flags_give_the_command_and_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert recipe("--hardware", "b200", "--model", "v3.2-nvfp4", "--strategy", "tp,dp,mtp", "--json") == 0
    out, err = capsys.readouterr()
    assert " ".join(json.loads(out)[0]["argv"]) == (
        "sglang serve --model-path nvidia/DeepSeek-V3.2-NVFP4 --tp-size 4 --quantization modelopt_fp4 "
        "--moe-runner-backend flashinfer_trtllm"
    )
    assert "without dp, mtp" in err


def test_a_written_recipe_launches_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my own.yaml"
    words = ("--hardware", "h200", "--model", "v3.2-exp", "--strategy", "tp,dp,mtp", "--tool-call-parser")
    assert recipe(*words, "--launch-arg", "hicache_ratio=2", "--json", "--out", str(file)) == 0
    out, err = capsys.readouterr()
    assert f"dsabench launch '{file}'" in err
    assert file.read_text().startswith(
        f"# Written by `dsabench recipe {shlex.join(words)} --launch-arg hicache_ratio=2`.\n"
    )
    assert load_launch(file).hardware == "h200"
    assert run(["launch", str(file), "--dry-run", "--json"]) == 0
    assert capsys.readouterr().out == out
    assert recipe(*words, "--out", str(file)) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hardware h200 --model v3.2-nvfp4", "error: MD01: "),
        ("--hardware b200 --model v3.2-mxfp4", "error: MD02: "),
        ("--hardware h200 --model v3.2-speciale --tool-call-parser", "error: MD03: "),
        ("--hardware h300 --model v3.2", "error: h300: unknown hardware (known: h200, "),
        ("--hardware npu --model v3.2", "error: --hardware npu: the generator knows h200, "),
        ("--hardware h200 --model v4", "error: v4: unknown model (known: v3.2-exp, "),
        ("--hardware h200 --model v3.2 --strategy tp,pp", "error: --strategy: pp is no strategy"),
        ("--hardware h200 --model v3.2 --strategy dp", "error: --strategy: tp is part of every strategy"),
        ("--hardware h200", "error: --model is missing: name hardware and model"),
        ("", "error: --hardware is missing: name hardware and model"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert recipe(*words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(said)


def test_a_terminal_is_asked_and_stdout_has_the_command_alone() -> None:
    """A wrong model is asked again; the answers are hardware, model, strategies, thinking, tool calls."""
    ours, theirs = pty.openpty()
    answers = "mi300x\nv3.2-nvfp4\nv3.2\ntp,dp\ny\nn\n"
    with subprocess.Popen(
        [sys.executable, "-m", "dsabench", "recipe"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asked:
        os.write(ours, answers.encode())
        out, err = asked.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert asked.returncode == 0, err
    assert b"one of v3.2-exp, v3.2" in err
    command = shlex.split(out.decode().replace("\\\n", " "))
    assert command[:4] == ["sglang", "serve", "--model-path", "deepseek-ai/DeepSeek-V3.2"]
    assert {"--trust-remote-code", "--reasoning-parser", "tilelang"} <= {*command}
    assert "--tool-call-parser" not in command

"""Every command that takes a file or a folder, given what is none: one line and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    "sweep {}",
    "sweep {} --dry-run",
    "config check {}",
    "launch {}",
    "launch {} --dry-run",
    "eval {}",
    "eval gsm8k --data {} --base-url http://127.0.0.1:1",
    "doctor {}",
    "ci {} --baseline results",
    "ci local --baseline {}",
    "tune flashmla-auto {}",
    "tune flashmla-auto local --kernels {}",
    "tune mha-threshold {}",
    "tune mha-threshold local --results {}",
    "tune hisparse {}",
    "tune hisparse local --results {}",
    "emit table {} --as flags",
    "emit check {} --runtime {}",
    "emit pr {} --runtime {}",
    "slice --config {} --gpus 8 --strategy dp8,ep8 out",
    "compare {} {}",
    "compare {}#ab {}",
    "compare {} {} --margin 0.01",
    "kernels report --results {}",
    "results list --results {}",
    "results show ab --results {}",
    "results plot ab -o out.svg --results {}",
    "results plot {}/x.parquet -o out.svg",
    "results query SELECT --results {}",
    "results export out.csv --results {}",
    "report --results {} --out site",
    "bench --dataset-name custom --tokenizer bytes --dataset-path {} --port 1 --model m --ready-check-timeout-sec 0",
    "bench --dataset-name sharegpt --tokenizer {} --port 1 --model m --ready-check-timeout-sec 0",
)
ALL = """
import contextlib, io, json, sys, traceback
from dsabench.cli.main import run
place, commands = sys.argv[1], json.loads(sys.argv[2])
for line in commands:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = run([word.replace("{}", place) for word in line.split()])
        except BaseException:
            code = -1
            traceback.print_exc()
    print(json.dumps([line, code, said.getvalue()]), flush=True)
"""
PLACES = (
    "",
    ".",
    "folder",
    "/dev/null",
    "binary",
    "unreadable",
    "empty",
    "closed",
    "closed/x",
    "folder/x",
    "text",
)


def capable_of_less() -> list[str]:
    """Root reads every file unless it gives up the right to."""
    if os.geteuid() != 0:
        return []
    program = shutil.which("setpriv")
    if program is None:
        pytest.skip("root reads every file, and there is no setpriv")
    return [program, "--bounding-set=-dac_override,-dac_read_search", "--"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)) * 16)
    (folder / "text").write_text("# A page\n\nnot data\n")
    (folder / "empty").touch()
    (folder / "unreadable").write_text("name: x\n")
    (folder / "unreadable").chmod(0)
    (folder / "closed").mkdir(mode=0)
    return folder


@pytest.mark.parametrize("place", ["none", *(pytest.param(place, marks=pytest.mark.slow) for place in PLACES)])
def test_what_is_no_file_of_ours_is_one_line(place: str, folder: Path) -> None:
    before = capable_of_less()
    done = subprocess.run(
        [*before, sys.executable, "-c", ALL, place, json.dumps(COMMANDS)],
        capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL, timeout=100,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HF_HOME": str(folder / "cache")},
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [one for one in told if one[1] != 2 or one[2].count("\n") != 1]
    assert (len(told), wrong) == (len(COMMANDS), [])
    assert not [made for made in ("site", "out", "out.svg", "out.csv", "results") if (folder / made).exists()]

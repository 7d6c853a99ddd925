from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from dsabench.cli.main import run
from sglang_server import install_server
from unit.sglang.stand_in import install_stand_in

PLAIN = """\
name: plain
runtime:
  kind: sglang
  model: deepseek-ai/DeepSeek-V3.2
  hardware: h200
  base: {tp_size: 8}
"""

UNASKED = "note: sglang {0}'s own checks were not asked; `dsabench runtime add sglang=={0}` makes them available\n"


def write(folder: Path, text: str) -> str:
    file = folder / "c.yaml"
    file.write_text(dedent(text))
    return str(file)


def launch(*words: str) -> int:
    return run(["launch", *words])


def test_json_is_a_list_of_role_rank_argv_and_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(write(tmp_path, PLAIN), "--runtime-version", "0.5.16", "--dry-run", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [
        {
            "role": "server",
            "node_rank": 0,
            "argv": [
                *("python3", "-m", "sglang.launch_server"),
                *("--model-path", "deepseek-ai/DeepSeek-V3.2", "--tp-size", "8"),
            ],
            "env": {},
        }
    ]
    assert err == UNASKED.format("0.5.16")


@pytest.mark.parametrize(
    ("hardware", "container", "said"),
    [
        ("mi300x", "{engine: docker}", "v0.5.8-rocm700-mi30x is taken, which holds 0.5.8"),
        ("h200", "{engine: podman}", "lmsysorg/sglang:latest is taken, which moves with every release"),
        ("mi300x", "{engine: docker, image: mine}", None),
    ],
)
def test_an_image_that_nobody_named_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hardware: str, container: str, said: str | None
) -> None:
    text = PLAIN.replace("hardware: h200", f"hardware: {hardware}") + f"  launch: {{container: {container}}}\n"
    assert launch(write(tmp_path, text), "--runtime-version", "0.5.16", "--dry-run", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err == UNASKED.format("0.5.16") if said is None else said in err


def test_an_illegal_config_exits_2_and_names_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, PLAIN.replace("tp_size: 8", "tp_size: 8, decode_backend: flashmla_auto"))
    assert launch(file, "--runtime-version", "0.5.16", "--dry-run", "--json") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: BE19: ")


def test_what_the_version_lacks_is_an_error_and_who_was_not_asked_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, PLAIN.replace("tp_size: 8", "tp_size: 8, topk_backend: torch"))
    assert launch(file, "--runtime-version", "0.5.12", "--dry-run") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["error", "VS01"],
        [
            "note",
            "sglang 0.5.12's own checks were not asked; `dsabench runtime add sglang==0.5.12` makes them available",
        ],
        ["note", "it runs without topk_backend"],
    ]


def test_text_has_one_command_for_each_node_and_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("recipes/pd", "--runtime-version", "0.5.12", "--dry-run") == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert headings == ["# prefill", "# decode", "# router"]
    assert launch("recipes/pp-cp", "--runtime-version", "0.5.12", "--dry-run") == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert headings == ["# server, node 0 of 2", "# server, node 1 of 2"]


def test_instances_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PLAIN + "  topology: {roles: [{role: prefill, instances: 2}, {role: decode}]}\n"
    assert launch(write(tmp_path, text), "--runtime-version", "0.5.16", "--dry-run", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["role"], one["instance"]) for one in listed] == [("prefill", 0), ("prefill", 1), ("decode", 0)]


def test_without_a_version_the_newest_known_is_written_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(write(tmp_path, PLAIN), "--dry-run") == 0
    assert "the commands are for sglang 0.5.23" in capsys.readouterr().err
    assert launch(write(tmp_path, PLAIN + "  version: 0.5.12\n"), "--dry-run") == 0
    assert capsys.readouterr().err == UNASKED.format("0.5.12")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("recipes/pdd", "error: recipes/pdd: no such file"),
        ("recipes/pd --runtime-version 0.5.24", "error: sglang 0.5.24: its flags are not in the table"),
        ("recipes/pd --runtime-version new", "error: new: no version"),
        ("local --runtime-version 0.5.16", "error: --runtime-version is for kind sglang"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(*words.split(), "--dry-run") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_mistakes_of_the_config_name_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, PLAIN.replace("tp_size", "tp_sise"))
    assert launch(file, "--dry-run") == 2
    assert "c.yaml:6: runtime.base.tp_sise: unknown key 'tp_sise'; did you mean tp_size?" in capsys.readouterr().err


def test_the_reference_runtime_has_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("local", "--dry-run", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert "dsabench.reference.launch_server" in listed["argv"]


def dsabench(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsabench", *words],
        cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_single_server_runs_in_the_foreground_as_the_installed_version_wants_it(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    text = f"""\
    name: here
    runtime:
      kind: sglang
      model: some/model
      base: {{tp_size: 2, metrics: true}}
      env: {{SGLANG_SOMETHING_NEW: "1"}}
      launch: {{python: {sys.executable}, env: {{PYTHONPATH: {site}, HF_TOKEN: hunter2}}}}
    """
    done = dsabench("launch", write(tmp_path, text), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 7, done.stderr  # the server's own
    said = json.loads(done.stdout)
    assert said["argv"] == ["--model-path", "some/model", "--tp-size", "2", "--enable-metrics"]
    assert said["env"] == {"SGLANG_SOMETHING_NEW": "1"}
    assert "hunter2" not in done.stderr

    lacking = text.replace("metrics: true", "prefill_backend: flashmla_kv")
    done = dsabench("launch", write(tmp_path, lacking), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert "error: VS01: prefill_backend: sglang 0.5.16 has no --dsa-prefill-backend" in done.stderr

    other = text.replace("model: some/model", "model: some/model\n      version: 0.5.12")
    done = dsabench("launch", write(tmp_path, other), cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert "asks for sglang 0.5.12, installed is 0.5.16" in done.stderr


def test_of_several_processes_the_one_that_ends_is_named(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    text = f"""\
    name: two
    runtime:
      kind: sglang
      model: some/model
      launch: {{python: {sys.executable}, env: {{PYTHONPATH: {site}}}}}
      base: {{tp_size: 2}}
      topology: {{roles: [{{role: server, nodes: 2}}]}}
    """
    (tmp_path / "tmp").mkdir()
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    done = dsabench("launch", write(tmp_path, text), cwd=tmp_path, **places)
    assert done.returncode == 3
    assert re.search(r"error: boot: exited: server(-0-node1)?: exited with code 7", done.stderr)
    (logs,) = (tmp_path / "tmp").glob("dsabench-launch-*")  # a fault shows only the end of its log
    assert f"logs: {logs}" in done.stderr


PD = """
name: pd
runtime:
  kind: sglang
  model: deepseek-ai/DeepSeek-V3.2
  hardware: h200
  base: {{tp_size: 8}}
  launch: {{python: {python}, env: {{PYTHONPATH: {site}}}}}
  topology: {{roles: [{{role: prefill}}, {{role: decode}}], router: {{policy: round_robin}}}}
"""


@pytest.mark.parametrize("words", [(), ("--logs", "logs")], ids=["no-logs", "logs"])
def test_several_processes_run_in_the_foreground_until_told_to_stop(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Real processes: prefill, decode and router answer, and a Ctrl-C leaves none of them, and no file but named logs."""
    site = install_server(tmp_path / "site")
    file = write(tmp_path, PD.format(python=sys.executable, site=site))
    family = uuid.uuid4().hex
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        "DSABENCH_TEST_FAMILY": family,
    }
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "dsabench", "launch", file, *words]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "ready after" in err
    left = [p for p in psutil.process_iter() if _belongs(p, family)]
    assert left == []
    assert [file for file in (tmp_path / "tmp").rglob("*") if file.is_file()] == []
    assert len(list((tmp_path / "logs").glob("*.log"))) == (3 if words else 0)


def _belongs(process: psutil.Process, family: str) -> bool:
    try:
        return process.environ().get("DSABENCH_TEST_FAMILY") == family
    except psutil.Error:
        return False

"""Launch commands that people published, as settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dsabench.cli.app import app
from dsabench.config.load import load_launch
from dsabench.errors import InputError
from dsabench.runtimes.command import Launch
from dsabench.sglang.accepts import from_table
from dsabench.sglang.command_line import read_command
from dsabench.sglang.plan import plan_sglang
from dsabench.sglang.versions import parse_version

PUBLISHED: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("launch_commands.yaml").read_text())
ACCEPTED = from_table(parse_version("0.5.16"))


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: str(one["report"]))
def test_a_published_command(published: dict[str, Any]) -> None:
    found = read_command(published["command"], from_table(parse_version(published["version"])))
    args = {f"args.{name}": value for name, value in published.get("args", {}).items()}
    assert found.knobs == {**published["knobs"], **args}
    assert found.env == published.get("env", {})
    assert (found.role, found.nodes) == (published.get("role", "server"), published.get("nodes", 1))
    for words in published.get("remarks", ()):
        assert any(words in line for line in found.remarks), (words, found.remarks)
    assert len(found.remarks) == len(published.get("remarks", ()))
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: str(one["report"]))
def test_it_becomes_the_same_command_again(published: dict[str, Any]) -> None:
    accepted = from_table(parse_version(published["version"]))
    found = read_command(published["command"], accepted)
    plan = plan_sglang(found.spec("h200"), accepted, Launch())
    wrong = [remark for remark in plan.remarks if remark.severity == "error"]
    assert {remark.knob for remark in wrong} <= {"args.nsa_prefill"}, "0.5.12 has no such flag, nor a single longer one"
    again = read_command(" ".join(map(repr, plan.processes[0].argv)), accepted)
    assert again.knobs == {name: value for name, value in found.knobs.items() if name != "args.nsa_prefill"}
    assert (again.model, again.role, again.nodes) == (found.model, found.role, found.nodes)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("python -m vllm serve x", "the command has neither sglang.launch_server nor sglang serve"),
        ('sglang serve --model "x', "the command cannot be read: no closing quotation"),
        ("sglang serve --tp 8", "the command names no model: --model-path is missing"),
        ("sglang serve --model x --tp", "--tp needs a value"),
        ("", "the command has neither"),
    ],
)
def test_what_is_no_command_is_one_line(command: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_command(command, ACCEPTED)


@pytest.mark.parametrize(
    ("version", "words", "knobs"),
    [
        ("0.5.16", "prefill disabled", {"piecewise_cuda_graph": False}),
        ("0.5.16", "prefill tc_piecewise", {"piecewise_cuda_graph": True}),
        ("0.5.16", "prefill breakable", {"args.cuda_graph_backend_prefill": "breakable"}),
        ("0.5.23", "prefill breakable", {"piecewise_cuda_graph": True}),
        ("0.5.16", "prefill disabled --cuda-graph-backend-decode disabled", {"cuda_graph": False}),
        ("0.5.16", "decode disabled", {"args.cuda_graph_backend_decode": "disabled"}),
    ],
)
def test_graphs_of_a_phase(version: str, words: str, knobs: dict[str, object]) -> None:
    command = f"sglang serve --model x --cuda-graph-backend-{words}"
    assert read_command(command, from_table(parse_version(version))).knobs == knobs


def test_it_is_printed_as_a_config(tmp_path: Path) -> None:
    command = "sglang serve --model deepseek-ai/DeepSeek-V3.2 --tp 8 --hicache-ratio 2 --port 1 extra"
    words = ["config", "from-command", "-", "--runtime-version", "0.5.16", "--hardware", "h200"]
    done = CliRunner().invoke(app, words, input=command)
    assert done.exit_code == 0, done.output
    (tmp_path / "it.yaml").write_text(done.stdout)
    config = load_launch(tmp_path / "it.yaml")
    assert dict(config.base) == {"tp_size": 8, "args.hicache_ratio": 2}
    assert done.stdout.startswith("# Read from a launch command, with the flags of sglang 0.5.16.\n# Left out, for")
    assert "# Left out: extra: belongs to no flag.\n" in done.stdout
    said = json.loads(CliRunner().invoke(app, [*words, "--json"], input=command).stdout)
    assert (said["verdict"], said["args"], len(said["remarks"])) == ("runs", ["hicache_ratio"], 2)


def test_a_refused_command_is_printed_all_the_same() -> None:
    command = "sglang serve --model deepseek-ai/DeepSeek-V3.2 --no-such-flag 3"
    done = CliRunner().invoke(app, ["config", "from-command", command, "--runtime-version", "0.5.16"])
    assert done.exit_code == 2
    assert "no_such_flag: 3" in done.stdout
    assert "error: VS01: args.no_such_flag: sglang 0.5.16 has no --no-such-flag" in done.stderr

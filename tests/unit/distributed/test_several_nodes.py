"""Deployments that stand on several nodes of a real Ray cluster, in network namespaces of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsabench.model.record import Failed, Measured
from dsabench.results.journal import Journal
from far_servers import of_booters, wait_until
from program import dsabench
from ray_nodes import TwoNodes, two_nodes
from sglang_server import install_server

SLOW = pytest.mark.slow
CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with two_nodes(tmp_path_factory.mktemp("nodes"), gpus=8) as made:
        yield made


CHUNKS = {"chunked_prefill_size": [8192, 4096]}
AXES: dict[str, dict[str, Any]] = {"h800-2node": CHUNKS, "h200-pd": {"prefill": CHUNKS}}


def study(folder: Path, config: str, **env: str) -> Path:
    """A shipped study with a server that has all of sglang but the model, and a load that fits a test."""
    text: dict[str, Any] = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())
    text["runtime"] |= {"version": "0.5.16", "ready_timeout_s": 60}
    launch = text["runtime"].get("launch", {})
    text["runtime"]["launch"] = launch | {
        "python": sys.executable,
        "env": {"PYTHONPATH": str(install_server(folder / "site")), **env},
    }
    text["runtime"]["base"] |= {"load_format": "dummy", "tokenizer": False}
    load = text["workloads"][0]
    kept = {name: load[name] for name in ("name", "seed") if name in load}
    text["workloads"] = [
        kept | {"dataset": "random-ids", "input_len": 32, "output_len": 4, "num_prompts": 12, "max_concurrency": 2}
    ]
    text.pop("first", None)
    text |= {"sweeps": [{"axes": AXES[config]}], "budget": {"max_trials": 2, "confirm_boots": 1}, "gate": None}
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(text))
    return file


def start(nodes: TwoNodes, config: Path, results: Path) -> subprocess.Popen[str]:
    words = ["--results", str(results), "--executor", "ray", "--ray-address", nodes.address, "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "dsabench", "sweep", str(config), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@SLOW
@pytest.mark.parametrize(
    ("config", "words", "logs"),
    [
        ("h800-2node", "--node-rank 1 --dist-init-addr {head}:", {"server.log", "server-0-node1.log"}),
        ("h200-pd", "--disaggregation-mode decode", {"prefill-0.log", "decode-0.log", "router.log"}),
    ],
)
def test_each_machine_of_a_deployment_is_a_node(
    tmp_path: Path, nodes: TwoNodes, config: str, words: str, logs: set[str]
) -> None:
    run = start(nodes, study(tmp_path, config, STAND_IN_JOINS="yes"), tmp_path / "r")
    seen: set[str] = set()
    while run.poll() is None:
        seen |= set(nodes.far_servers())
        time.sleep(0.1)
    out, err = run.communicate()
    assert run.returncode in {0, 1}, err
    assert json.loads(out)["verdicts"]
    records = Journal(tmp_path / "r").read().records
    assert len(records) == 4
    for one in records:
        assert isinstance(one.outcome, Measured), one.outcome
        folder = tmp_path / "r" / "boots" / one.boot[:8]
        assert {file.name for file in folder.iterdir()} >= logs
    assert seen
    assert all(words.format(head=nodes.head) in one for one in seen), "the others are beside the load generator"
    assert not nodes.far_servers()
    assert not of_booters()


@SLOW
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_nothing_outlives_the_run_on_any_node(tmp_path: Path, nodes: TwoNodes, number: int, code: int) -> None:
    run = start(nodes, study(tmp_path, "h800-2node", STAND_IN_BOOT_S="30"), tmp_path / "r")
    wait_until(lambda: nodes.far_servers() and of_booters(), run)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert run.returncode == code
    wait_until(lambda: not (nodes.far_servers() or of_booters()), within_s=40 if number == signal.SIGKILL else 0)


@SLOW
def test_servers_that_fit_one_node_stay_together(tmp_path: Path, nodes: TwoNodes) -> None:
    """Though the config names machines and an ssh for them."""
    file = study(tmp_path, "h200-pd")
    file.write_text(file.read_text().replace("_size: 8", "_size: 4").replace("hardware: h200", "hardware: b300"))
    run = start(nodes, file, tmp_path / "r")
    _, err = run.communicate(timeout=120)
    assert run.returncode in {0, 1}, err
    records = Journal(tmp_path / "r").read().records
    assert {one.labels[-1] for one in records} == {"one of 2 machines of a cluster"}
    assert all(isinstance(one.outcome, Measured) for one in records), [one.outcome for one in records]


@SLOW
def test_a_cluster_that_is_too_small_is_one_line(tmp_path: Path, nodes: TwoNodes) -> None:
    file = study(tmp_path, "h200-pd")
    file.write_text(file.read_text().replace("role: decode", "role: decode\n      instances: 2"))
    run = start(nodes, file, tmp_path / "r")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert err.splitlines()[-1] == "error: --executor ray: the cluster has no 3 nodes with 8, 8, 8 GPUs"


@SLOW
def test_a_server_that_dies_on_another_node_is_told_with_its_cause(tmp_path: Path, nodes: TwoNodes) -> None:
    run = start(nodes, study(tmp_path, "h800-2node", STAND_IN="node", STAND_IN_BOOT_S="10"), tmp_path / "r")
    _, err = run.communicate(timeout=120)
    assert run.returncode == 3, err
    first = Journal(tmp_path / "r").read().records[0].outcome
    assert isinstance(first, Failed)
    assert "server-0-node1" in first.message
    assert "Watchdog caught collective operation timeout" in first.message + first.log_tail


@SLOW
def test_a_lost_node_is_no_fault_of_the_setting(tmp_path: Path) -> None:
    with two_nodes(tmp_path, gpus=8) as made:
        run = start(made, study(tmp_path, "h800-2node", STAND_IN_BOOT_S="5"), tmp_path / "r")
        wait_until(made.far_servers, run)
        made.kill_far()
        out, err = run.communicate(timeout=150)
    assert (run.returncode, out) == (3, "")
    assert "no machine of the cluster boots any more; what is measured is kept" in err
    (record,) = Journal(tmp_path / "r").read().records
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault, record.outcome.transient) == ("killed", True)
    assert not of_booters()


@SLOW
@pytest.mark.parametrize(
    ("config", "words", "number"),
    [
        ("h800-2node", "--node-rank 1 --dist-init-addr {head}:", signal.SIGKILL),
        ("h200-pd", "--disaggregation-mode decode", signal.SIGINT),
    ],
)
def test_a_launch_stands_on_nodes_until_it_ends(
    tmp_path: Path, nodes: TwoNodes, config: str, words: str, number: int
) -> None:
    """Ranks of one server, and two servers with their router; killed, and interrupted."""
    written = yaml.safe_load(study(tmp_path, config).read_text())
    file = tmp_path / "launch.yaml"
    file.write_text(yaml.safe_dump({"name": "launched", "runtime": written["runtime"]}))
    run = subprocess.Popen(
        [sys.executable, "-m", "dsabench", "launch", str(file), "--executor", "ray", "--ray-address", nodes.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    url = run.stdout.readline().strip()
    assert url, run.communicate()[1]
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        assert answer.status == 200
    assert any(words.format(head=nodes.head) in one for one in nodes.far_servers())
    run.send_signal(number)
    _, err = run.communicate(timeout=60)
    assert run.returncode == (130 if number == signal.SIGINT else -number), err
    wait_until(lambda: not nodes.far_servers(), within_s=40 if number == signal.SIGKILL else 0)


REFERENCE = "dsabench.reference"
APART: dict[str, dict[str, Any]] = {
    "ranks": {"base": {"tp_size": 2}, "topology": {"roles": [{"nodes": 2}]}},
    "pd": {"topology": {"roles": [{"role": "prefill"}, {"role": "decode"}], "router": {"policy": "round_robin"}}},
}
"""Two tensor parallel ranks of one server, which meet over gloo; prefill and decode, whose KV goes from one to the other."""


def reference(folder: Path, which: str) -> Path:
    load = {"dataset": "random-ids", "input_len": 48, "output_len": 8, "num_prompts": 12, "max_concurrency": 2}
    study = {
        "name": "apart",
        "runtime": {"kind": "reference", "model": "tiny", "ready_timeout_s": 60, **APART[which]},
        "workloads": [{"name": "chat", **load}],
        "sweeps": [{"axes": {"chunked_prefill_size": [64, 128]}}],
        "proposer": {"kind": "grid"},
        "objective": {"metric": "output_throughput_tok_s", "direction": "maximize"},
        "budget": {"max_trials": 2, "confirm_boots": 1},
        "gate": None,
    }
    study["runtime"].setdefault("base", {})["chunked_prefill_size"] = 64
    study["runtime"]["launch"] = {
        "env": {"RES_OPTIONS": "timeout:1 attempts:1"}
    }  # torch asks for names, and none answers
    file = folder / f"{which}.yaml"
    file.write_text(yaml.safe_dump(study))
    return file


@SLOW
def test_ranks_of_one_model_on_two_nodes_are_measured(tmp_path: Path, nodes: TwoNodes) -> None:
    """A real model: half of it on each node, and every token takes both. The trials are those of one machine."""
    run = start(nodes, reference(tmp_path, "ranks"), tmp_path / "r")
    seen: set[str] = set()
    while run.poll() is None:
        seen |= set(nodes.far_servers(REFERENCE))
        time.sleep(0.1)
    _, err = run.communicate()
    assert run.returncode in {0, 1}, err
    records = Journal(tmp_path / "r").read().records
    assert len(records) == 4
    for one in records:
        assert isinstance(one.outcome, Measured), one.outcome
        assert one.outcome.metrics["output_tokens"].value == 12 * 8
    assert any(f"--node-rank 1 --dist-init-addr {nodes.head}:" in one for one in seen), seen
    assert not nodes.far_servers(REFERENCE)
    assert not of_booters()
    local = dsabench("sweep", reference(tmp_path, "ranks"), "--results", tmp_path / "local", "--max-trials", "1")
    assert local.returncode == 0, local.stderr
    (own,) = {one.id for one in Journal(tmp_path / "local").read().records}
    assert own in {one.id for one in records}


@SLOW
def test_prefill_and_decode_on_two_nodes_answer_through_their_router(tmp_path: Path, nodes: TwoNodes) -> None:
    written = yaml.safe_load(reference(tmp_path, "pd").read_text())
    file = tmp_path / "launch.yaml"
    file.write_text(yaml.safe_dump({"name": "launched", "runtime": written["runtime"]}))
    words = ["launch", str(file), "--executor", "ray", "--ray-address", nodes.address]
    run = subprocess.Popen(
        [sys.executable, "-m", "dsabench", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    url = run.stdout.readline().strip()
    assert url, run.communicate()[1]
    body = json.dumps({"text": "apart", "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}})
    with urllib.request.urlopen(urllib.request.Request(f"{url}/generate", body.encode()), timeout=30) as answer:
        assert len(json.load(answer)["output_ids"]) == 8
    assert any("--disaggregation-mode decode" in one for one in nodes.far_servers(REFERENCE))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert not nodes.far_servers(REFERENCE)


@SLOW
def test_a_launch_that_no_nodes_fit_is_one_line(tmp_path: Path, nodes: TwoNodes) -> None:
    file = tmp_path / "launch.yaml"
    runtime = {"kind": "sglang", "model": "deepseek-ai/DeepSeek-V3.2", "base": {"tp_size": 16}}
    file.write_text(yaml.safe_dump({"name": "launched", "runtime": runtime}))
    words = [
        sys.executable,
        "-m",
        "dsabench",
        "launch",
        str(file),
        "--executor",
        "ray",
        "--ray-address",
        nodes.address,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: --executor ray: no node of the cluster has 16 GPUs"

"""Boots on the nodes of a real Ray cluster on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsabench.config.specs import RuntimeConfig
from dsabench.distributed import ray_cluster
from dsabench.distributed.booter import Message
from dsabench.distributed.ray_cluster import RayMachine, left_out
from dsabench.model.record import Failed, Measured, Scored, Trial
from dsabench.results.journal import Journal
from dsabench.runtimes.kinds import make_runtime
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession
from factories import ENVIRONMENT
from far_servers import of_booters, wait_until
from program import dsabench
from studies import SHORT_EVAL, STUDY, load_study

SLOW = pytest.mark.slow

GRID = STUDY.replace("name: study", "name: grid").replace("budget: {max_trials: 6,", "budget: {")
"""Three settings beside the default, under two workloads."""
KERNELS = GRID.replace(", chunked_prefill_size: [128, 256]}", "}")
"""One, which may answer otherwise."""


@pytest.fixture
def cluster() -> Iterator[object]:
    """A head and one more node, each a raylet of its own. The test's process is of neither: it names the address."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def sweep(folder: Path, *words: str, text: str = GRID) -> subprocess.CompletedProcess[str]:
    (folder / "study.yaml").write_text(text)
    return dsabench("sweep", folder / "study.yaml", *words)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "study.yaml").write_text(GRID)
    argv = [sys.executable, "-m", "dsabench", "sweep", str(folder / "study.yaml"), *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@SLOW
def test_two_nodes_measure_what_one_process_does(tmp_path: Path, cluster: object) -> None:
    node = cluster.add_node(num_cpus=1)  # type: ignore[attr-defined]
    assert node is not None
    local = sweep(tmp_path, "--results", str(tmp_path / "local"), "--json")
    address = cluster.address  # type: ignore[attr-defined]
    there = sweep(tmp_path, "--results", str(tmp_path / "ray"), "--json", "--executor", "ray", "--ray-address", address)
    assert (local.returncode, there.returncode) == (0, 0), local.stderr + there.stderr
    assert json.loads(there.stdout)["verdicts"]
    records = Journal(tmp_path / "ray").read().records
    of_local = Journal(tmp_path / "local").read().records
    assert {one.id for one in records} == {one.id for one in of_local}
    assert len({one.key for one in records}) == len(records) == len(of_local)
    for one in records:
        assert isinstance(one.outcome, Measured), one.outcome
        assert (tmp_path / "ray" / str(one.outcome.samples)).is_file()
        assert (tmp_path / "ray" / "boots" / one.boot[:8] / "server.log").is_file()
        assert one.labels[-1] == "one of 2 machines of a cluster"
    assert not of_booters()


@SLOW
@pytest.mark.parametrize(("ask", "code"), [("finalists", 1), ("settings", 0)])
def test_the_gate_is_asked_on_a_node(tmp_path: Path, cluster: object, ask: str, code: int) -> None:
    """Four questions that the default cannot answer pass no gate; asked of every setting, they leave none to confirm."""
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    gate = f"gate: {{eval: {tmp_path / 'short.yaml'}, margin: 0.2, repeat: 2, ask: {ask}, finalists: 1}}\n"
    words = ["--executor", "ray", "--ray-address", cluster.address, "--json"]  # type: ignore[attr-defined]
    done = sweep(tmp_path, "--results", str(tmp_path / "r"), *words, text=KERNELS + gate)
    assert done.returncode == code, done.stderr
    gated = [one for one in Journal(tmp_path / "r").read().records if one.phase == "gate"]
    assert len(gated) == 2
    for one in gated:
        assert isinstance(one.outcome, Scored)
        assert (tmp_path / "r" / str(one.outcome.samples)).is_file()
    assert len({one.trial.runtime.id for one in gated}) == len(gated), "a setting is asked once"
    assert not of_booters()


@SLOW
def test_a_lost_node_loses_nothing(tmp_path: Path, cluster: object) -> None:
    node = cluster.add_node(num_cpus=1)  # type: ignore[attr-defined]
    words = ["--results", str(tmp_path / "r"), "--executor", "ray", "--ray-address", cluster.address]  # type: ignore[attr-defined]
    run = start(tmp_path, *words)
    journal = Journal(tmp_path / "r")
    wait_until(lambda: len(journal.read().records) >= 2, run)
    cluster.remove_node(node, allow_graceful=False)  # type: ignore[attr-defined]
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    records = journal.read().records
    assert len({one.key for one in records}) == len(records)
    measured = {one.id for one in records if isinstance(one.outcome, Measured)}
    failed = [(one.id, one.outcome) for one in records if isinstance(one.outcome, Failed)]
    assert all(fault.fault in {"killed", "client_saturated"} and fault.transient for _, fault in failed)
    retried = Counter(
        one for one, _ in failed
    )  # a busy machine may have spoiled the first attempt of what is then lost
    assert {one.id for one in records} == measured | {one for one, times in retried.items() if times == 2}
    assert "is gone" in said or "what is left is measured without it" in said
    assert not of_booters()


@SLOW
def test_an_interrupt_leaves_nothing(tmp_path: Path, cluster: object) -> None:
    words = ["--results", str(tmp_path / "r"), "--executor", "ray", "--ray-address", cluster.address]  # type: ignore[attr-defined]
    run = start(tmp_path, *words)
    wait_until(lambda: bool(of_booters()), run)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130, said
    assert "Continue with:" in said
    assert not of_booters()


@SLOW
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, cluster: object) -> None:
    words = ["--results", str(tmp_path / "r"), "--executor", "ray", "--ray-address", cluster.address]  # type: ignore[attr-defined]
    run = start(tmp_path, *words)
    journal = Journal(tmp_path / "r")
    wait_until(lambda: len(journal.read().records) >= 2 and bool(of_booters()), run)
    run.kill()
    run.communicate()
    wait_until(lambda: not of_booters())
    before = journal.read().records
    done = sweep(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    records = journal.read().records
    assert records[: len(before)] == before
    assert len({one.key for one in records}) == len(records)
    assert all(isinstance(one.outcome, Measured) for one in records)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--ray-address", "127.0.0.1:1"], "--ray-address goes with --executor ray"),
        (["--executor", "ray", "--ray-address", "127.0.0.1:1"], "--ray-address 127.0.0.1:1: nothing answers there"),
        (["--executor", "ray", "--ray-address", "head"], "--ray-address head: nothing answers there"),
        (["--ray-label", "a=b"], "--ray-label goes with --executor ray"),
        (["--executor", "ray", "--ray-label", "a="], "--ray-label a=: use KEY=VALUE, such as ray.io/accelerator-type"),
        (["--executor", "ray", "--lanes", "2"], "the machines of the cluster are the lanes"),
    ],
)
def test_what_does_not_go_is_one_line(tmp_path: Path, words: list[str], line: str) -> None:
    done = sweep(tmp_path, "--results", str(tmp_path / "r"), *words)
    assert done.returncode == 2
    assert line in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_silent_address_of_the_environment_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(GRID)
    words = ["--results", str(tmp_path / "r"), "--executor", "ray"]
    done = dsabench("sweep", tmp_path / "study.yaml", *words, RAY_ADDRESS="127.0.0.1:1")
    assert done.returncode == 2
    assert "RAY_ADDRESS=127.0.0.1:1: nothing answers there" in done.stderr


@SLOW
def test_only_nodes_with_the_label_measure(tmp_path: Path, cluster: object) -> None:
    cluster.add_node(num_cpus=1, labels={"rack": "b"})  # type: ignore[attr-defined]
    words = ["--results", str(tmp_path / "r"), "--executor", "ray", "--ray-address", cluster.address]  # type: ignore[attr-defined]
    none = sweep(tmp_path, *words, "--ray-label", "rack=c")
    assert none.returncode == 2
    assert "--executor ray: no node of the cluster has rack=c" in none.stderr
    run = start(tmp_path, *words, "--ray-label", "rack=b")
    journal = Journal(tmp_path / "r")
    wait_until(lambda: bool(journal.read().records), run)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert "--ray-label rack=b" in said, "the command that goes on"
    assert journal.read().records[0].labels == (), "one node of the two"


class TestNodesFor:
    """Nodes of a cluster: here, a head without GPUs, and three of two kinds."""

    @pytest.fixture
    def ray(self) -> SimpleNamespace:
        kinds = {"head": None, "one": "H200", "two": "H20", "three": "H200"}
        nodes = [
            {
                "NodeID": name,
                "NodeManagerAddress": name,
                "Alive": True,
                "Labels": {"rack": name[0]} | ({"ray.io/accelerator-type": kind} if kind else {}),
            }
            for name, kind in kinds.items()
        ]
        here = SimpleNamespace(get_node_id=lambda: "head")
        return SimpleNamespace(nodes=lambda: nodes, get_runtime_context=lambda: here)

    @pytest.mark.parametrize(
        ("hardware", "labels", "names", "lines"),
        [
            ("h200", {}, ["head", "one", "three"], ["node two has H20, and the config is for h200: it is left out"]),
            ("h200", {"rack": "t"}, ["three"], ["node two has H20, and the config is for h200: it is left out"]),
            ("h200", {"rack": "x"}, [], []),
            ("b200", {}, ["head", "one", "three", "two"], []),  # a pretended kind: nothing tells which is meant
            (None, {"rack": "h"}, ["head"], []),
        ],
    )
    def test_those_that_the_config_is_for(
        self, ray: SimpleNamespace, hardware: str | None, labels: dict[str, str], names: list[str], lines: list[str]
    ) -> None:
        told: list[str] = []
        nodes = ray_cluster.nodes_for(ray, hardware, labels, told.append)
        assert ([one["NodeID"] for one in nodes], told) == (names, lines)

    @pytest.mark.parametrize(
        ("kind", "hardware"),
        [("H200", "h200"), ("AMD-Instinct-MI300X-OAM", "mi300x"), ("RTX-PRO-6000", "rtx-pro-6000")],
    )
    def test_names_of_ray(self, kind: str, hardware: str) -> None:
        assert ray_cluster.is_kind(kind, hardware)
        assert not ray_cluster.is_kind(kind, hardware[:-1])


def test_nodes_that_have_the_model_in_memory_come_first() -> None:
    nodes = [{"NodeID": name} for name in ("here", "b", "c", "d")]
    shares = {"here": 0.04, "b": 0.0, "c": 0.97, "d": 0.91}
    ordered = ray_cluster.by_share(nodes, shares)
    assert [node["NodeID"] for node in ordered] == ["c", "d", "here", "b"]
    assert ray_cluster.by_share(nodes, dict.fromkeys(shares, 0.99)) == nodes


@SLOW
def test_each_node_is_asked_what_it_has_in_memory(
    tmp_path: Path, cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of one machine have the same, so what a node would say is laid down by where it is asked."""
    ray = ray_cluster.connect(cluster.address)  # type: ignore[attr-defined]
    far = cluster.add_node(num_cpus=1)  # type: ignore[attr-defined]
    nodes = ray_cluster.alive(ray)
    assert len(nodes) == 2
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(1 << 20))
    config = RuntimeConfig(kind="sglang", model=str(tmp_path))
    told: list[str] = []
    assert ray_cluster.nearest_first(ray, nodes, config, told.append) == nodes
    assert told == []
    name = far.node_id
    monkeypatch.setattr(ray_cluster, "_share_of", lambda *_: float(ray.get_runtime_context().get_node_id() == name))
    ordered = ray_cluster.nearest_first(ray, nodes, config, told.append)
    assert [node["NodeID"] for node in ordered] == [name, *(one["NodeID"] for one in nodes if one["NodeID"] != name)]
    dummy = config.model_copy(update={"base": {"load_format": "dummy"}})
    assert ray_cluster.nearest_first(ray, nodes, dummy, told.append) == nodes


def test_only_machines_alike_measure() -> None:
    machines = [RayMachine(name, lambda: None, lambda: True) for name in ("one", "two", "three")]
    machines[0].environment = machines[2].environment = ENVIRONMENT
    machines[1].environment = ENVIRONMENT.model_copy(update={"fingerprint": "0123456789abcdef"})
    machines[2].why_not = "three: no runtime"
    assert list(left_out(machines, ENVIRONMENT)) == [
        "two: other hardware or versions than the first node has",
        "three: no runtime",
    ]
    assert [one.name for one in machines if not one.why_not] == ["one"]


async def test_an_actor_that_waits_for_its_gpus_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_cluster, "SILENT_S", 0.01)
    free, told = asyncio.Event(), Told()

    async def environment() -> str:
        await free.wait()
        return ENVIRONMENT.model_dump_json()

    machine = RayMachine("node one", lambda: SimpleNamespace(environment=SimpleNamespace(remote=environment)), bool)
    opening = asyncio.create_task(ray_cluster.opened(machine, told))
    await told.said.wait()
    assert not opening.done()
    assert told.lines == ["node one: waits for its GPUs"]
    free.set()
    assert await opening
    assert machine.environment == ENVIRONMENT


async def test_a_fault_of_ours_is_a_record_and_no_second_boot(tmp_path: Path) -> None:
    errors = pytest.importorskip("ray.exceptions")

    async def boot(_: str) -> AsyncIterator[Awaitable[Message]]:
        async def failed() -> Message:
            raise errors.RayTaskError("boot", "Traceback …", KeyError("gpu")).as_instanceof_cause()

        yield failed()

    machine = RayMachine("node one", lambda: None, bool)
    machine._actor = SimpleNamespace(boot=SimpleNamespace(remote=boot))
    config = load_study(tmp_path)
    session = TrialSession("study", make_runtime(config.runtime), ENVIRONMENT, Journal(tmp_path), tmp_path)
    planned = PlannedTrial(Trial(runtime=config.default, workload=config.workloads[0]), 0, "search")
    (record,) = await machine.run_boot(session, [planned])
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.fault, record.outcome.transient) == ("internal", False)
    assert "gpu" in record.outcome.message
    assert Journal(tmp_path).read().records == (record,)


class Told(StudyObserver):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.said = asyncio.Event()

    def note(self, text: str) -> None:
        self.lines.append(text)
        self.said.set()

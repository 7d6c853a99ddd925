"""The runtime that drives sglang, against a server with real processes, sockets, flags and log lines, and no model."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from contracts.runtime import RuntimeContract
from dsabench.errors import InputError, TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RouterSpec, Topology
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import Deployment
from dsabench.runtimes.protocol import Place, Runtime, Server
from dsabench.sglang.runtime import SglangRuntime
from sglang_server import install_server
from unit.workshop import Workshop


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_server(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parser is asked once for all tests; nothing of dsabench's own path reaches it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("PYTHONPATH", "/nowhere/dsabench")


def sglang(site: Path, prefix: tuple[str, ...] = (), **env: str) -> SglangRuntime:
    return SglangRuntime(
        Launch(python=Path(sys.executable), env={"PYTHONPATH": str(site), **env}, command_prefix=prefix)
    )


def spec_of(topology: Topology | None = None, **knobs: KnobValue) -> RuntimeSpec:
    return RuntimeSpec(kind="sglang", model="v3.2", hardware="h200", knobs={"tp_size": 8, **knobs}, topology=topology)


def place_of(tmp_path: Path) -> Place:
    return Place(folder=tmp_path / "boot", ready_timeout_s=30, stop_timeout_s=5)


async def fault_of(runtime: SglangRuntime, spec: RuntimeSpec, place: Place) -> TrialFault:
    with pytest.raises(TrialFault) as caught:
        async with runtime.serve(spec, place):
            pass
    return caught.value


def said(server: Deployment) -> Mapping[str, object]:
    told = server.resolved["dsabench"]
    assert isinstance(told, dict)
    return told


@pytest.mark.usefixtures("workshop")
class TestContract(RuntimeContract):
    @pytest.fixture
    def runtime(self, site: Path) -> Runtime:
        return sglang(site)

    @pytest.fixture
    def spec(self) -> RuntimeSpec:
        return spec_of(kv_cache_dtype="fp8_e4m3")

    @pytest.fixture
    def illegal(self) -> RuntimeSpec:
        return spec_of(kv_cache_dtype="fp8_e4m3", decode_backend="fa3")

    async def kill(self, server: Server) -> None:
        assert isinstance(server, Deployment)
        os.kill(server.parts[0].process.pid or 0, signal.SIGKILL)


async def test_what_is_installed_is_told_without_importing_it(site: Path) -> None:
    (site / "sglang" / "__init__.py").write_text("")
    identity = await sglang(site).identity()
    assert (identity.kind, identity.version) == ("sglang", "0.5.16")
    assert identity.packages is not None


@pytest.mark.usefixtures("workshop")
async def test_what_it_runs_with_is_read_back(site: Path, tmp_path: Path) -> None:
    words: list[str] = []
    place = dataclasses.replace(place_of(tmp_path), on_progress=words.append)
    sizes = {"chunked_prefill_size": 8192, "dp_size": 8, "dp_attention": True}
    asked = spec_of(kv_cache_dtype="fp8_e4m3", tool_call_parser="deepseekv31", **sizes)
    async with sglang(site, STAND_IN_BOOT_S="1.5").serve(asked, place) as server:
        told = said(server)
        environment = Path(f"/proc/{server.parts[0].process.pid}/environ").read_bytes()
    assert b"/nowhere/dsabench" not in environment
    assert told["differences"] == [
        "chunked_prefill_size: asked 8192, runs with 1024 per rank (asked ÷ 8 groups of the attention)"
    ]
    assert told["vocab_size"] == 129280
    log = told["log"]
    assert isinstance(log, dict)
    assert (log["kv_tokens"], log["decode_backend"], log["kv_cache_dtype"]) == (400000, "flashmla_kv", "fp8_e4m3")
    assert any("MD04" in str(note) for note in told["notes"])  # type: ignore[attr-defined]
    assert server.resolved["tp_size"] == 8
    assert server.gpus == tuple("01234567")
    assert "graphs after 1.50 s" in words


async def test_a_rule_refuses_before_anything_starts(site: Path, tmp_path: Path) -> None:
    fault = await fault_of(sglang(site), spec_of(kv_cache_dtype="fp8_e4m3", decode_backend="fa3"), place_of(tmp_path))
    assert (fault.kind, fault.stage, fault.transient) == ("illegal_config", "boot", False)
    assert fault.message.startswith("SL04: ")
    assert not (tmp_path / "boot").exists()


async def test_speculation_on_random_weights_needs_a_pinned_accept_length(site: Path, tmp_path: Path) -> None:
    mtp: dict[str, KnobValue] = {
        "load_format": "dummy",
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    fault = await fault_of(sglang(site), spec_of(**mtp), place_of(tmp_path))
    assert (fault.kind, fault.message[:5]) == ("illegal_config", "SIM01")


async def test_another_version_than_asked_is_the_users_mistake(site: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"asks for sglang 0\.5\.12, installed is 0\.5\.16"):
        async with sglang(site).serve(spec_of().model_copy(update={"version": "0.5.12"}), place_of(tmp_path)):
            pass


@pytest.mark.usefixtures("workshop")
@pytest.mark.parametrize(
    ("mode", "knobs", "kind"),
    [
        ("weights", {}, "weights_out_of_memory"),
        ("", {"mem_fraction_static": 0.02}, "kv_pool_out_of_memory"),
        ("graph", {}, "graph_out_of_memory"),
    ],
)
async def test_a_boot_that_fails_names_its_cause(
    site: Path, tmp_path: Path, mode: str, knobs: dict[str, KnobValue], kind: str
) -> None:
    spec = spec_of(**knobs).model_copy(update={"model": "a/model-of-unknown-size"})
    fault = await fault_of(sglang(site, STAND_IN=mode), spec, place_of(tmp_path))
    assert (fault.kind, fault.stage, fault.transient) == (kind, "boot", False)
    assert "Traceback" in fault.log_tail


@pytest.mark.usefixtures("workshop")
async def test_a_watchdog_that_bites_while_serving(site: Path, tmp_path: Path) -> None:
    async def use() -> None:
        async with sglang(site, STAND_IN="watchdog").serve(spec_of(), place_of(tmp_path)) as server:
            await asyncio.wait_for(server.died(), 60)

    with pytest.raises(TrialFault) as caught:
        await use()
    assert (caught.value.kind, caught.value.stage) == ("watchdog", "load")


PD = Topology(roles=(Role(role="prefill"), Role(role="decode", instances=2)), router=RouterSpec(policy="round_robin"))


async def test_prefill_decode_and_router_come_and_go_together(site: Path, tmp_path: Path, workshop: Workshop) -> None:
    async with sglang(site).serve(spec_of(PD), place_of(tmp_path)) as server:
        assert [part.name for part in server.parts] == ["prefill-0", "decode-0", "decode-1", "router"]
        assert server.base_url == server.parts[-1].endpoint.base_url  # type: ignore[union-attr]
        ports = [int(part.endpoint.base_url.rpartition(":")[2]) for part in server.servers if part.endpoint]
        assert ports[2] - ports[1] == 300
        await server.flush()
        assert set(await server.info()) == {"prefill-0", "decode-0", "decode-1"}
        assert set(said(server)["log"]) == {"prefill-0", "decode-0", "decode-1"}  # type: ignore[call-overload]
        assert len(workshop.alive()) >= 4
    workshop.wait_gone()


@pytest.mark.usefixtures("workshop")
async def test_the_gpus_of_all_servers_are_known_where_all_are_here(site: Path, tmp_path: Path) -> None:
    pair = Topology(roles=(Role(role="prefill", knobs={"tp_size": 1}), Role(role="decode", knobs={"tp_size": 2})))
    seen = sglang(site, CUDA_VISIBLE_DEVICES="5,4,GPU-a,7")
    small = spec_of(pair).model_copy(update={"model": "a/model-of-unknown-size"})
    async with seen.serve(small, place_of(tmp_path)) as server:
        assert server.gpus == ("5", "4", "GPU-a")
    async with seen.serve(spec_of(), place_of(tmp_path)) as server:
        assert server.gpus == (), "it says it takes eight"
    async with sglang(site, ("env", "--")).serve(spec_of(), place_of(tmp_path)) as server:
        assert server.gpus == (), "who knows where a prefix leads"


async def test_when_one_part_dies_all_go(site: Path, tmp_path: Path, workshop: Workshop) -> None:
    async def use() -> None:
        async with sglang(site).serve(spec_of(PD), place_of(tmp_path)) as server:
            os.kill(server.parts[1].process.pid or 0, signal.SIGKILL)
            await asyncio.wait_for(server.died(), 60)

    with pytest.raises(TrialFault) as caught:
        await use()
    assert caught.value.message.startswith("decode-0: ")
    workshop.wait_gone()


TWO_NODES = Topology(roles=(Role(nodes=2),))


async def test_a_node_that_fails_ends_the_boot_of_all(site: Path, tmp_path: Path, workshop: Workshop) -> None:
    """Both nodes stand on this machine, each started through a prefix, as srun would."""
    runtime = sglang(site, ("env", "--"), STAND_IN="node", STAND_IN_BOOT_S="20")
    fault = await fault_of(runtime, spec_of(TWO_NODES), place_of(tmp_path))
    assert (fault.kind, fault.transient) == ("nccl_timeout", True)
    assert fault.message.startswith("server-0-node1: ")
    workshop.wait_gone()


@pytest.mark.usefixtures("workshop")
async def test_two_nodes_answer_at_the_first(site: Path, tmp_path: Path) -> None:
    async with sglang(site, ("env", "--")).serve(spec_of(TWO_NODES), place_of(tmp_path)) as server:
        assert [part.endpoint is None for part in server.parts] == [False, True]
        assert await server.info()

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import LaunchConfig, RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.knobs import KNOBS
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleHosts, Topology
from dsabench.reference.identify import hash_of
from dsabench.reference.runtime import KNOWN, VARIABLES, ReferenceRuntime, render
from dsabench.runtimes.command import Launch
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import PlannedProcess
from dsabench.runtimes.protocol import Place
from dsabench.sglang.runtime import SglangRuntime

SPEC = RuntimeSpec(kind="reference", model="tiny")


def test_every_canonical_knob_is_rendered() -> None:
    assert set(runtime_kinds()["reference"].knobs or {}) == KNOWN
    assert set(runtime_kinds()["reference"].knobs or {}) <= set(KNOBS)


def test_rendering() -> None:
    flags, variables = render(
        {"prefix_cache": False, "chunked_prefill_size": 256, "mha_threshold_tokens": 0, "dtype": "float32"}
    )
    assert flags == ("--chunked-prefill-size", "256", "--dtype", "float32", "--disable-radix-cache")
    assert variables == {"SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": "0"}
    assert render({"prefix_cache": True}) == ((), {})
    assert render({"device": "cuda", "prefill_backend": "triton", "decode_backend": "triton"})[0] == (
        *("--dsa-decode-backend", "triton"),
        *("--device", "cuda"),
        *("--dsa-prefill-backend", "triton"),
    )


@pytest.mark.parametrize(("name", "value"), [("cp_mode", "zigzag"), ("prefix_cache", 1)])
def test_unknown_knob_or_switch(name: str, value: int | str) -> None:
    with pytest.raises(InputError, match=name):
        render({name: value})


def planned(runtime: ReferenceRuntime, spec: RuntimeSpec = SPEC, cores: Sequence[int] = ()) -> PlannedProcess:
    (process,) = runtime.plan(spec, cores=cores).processes
    return process


def test_threads_follow_the_cores() -> None:
    runtime = ReferenceRuntime(Launch())
    assert planned(runtime, cores=(3, 4, 5)).argv[-2:] == ("--cpu-threads", "3")
    spec = SPEC.model_copy(update={"knobs": {"cpu_threads": 2}})
    assert planned(runtime, spec, cores=(3, 4, 5)).argv[-2:] == ("--cpu-threads", "2")


def test_command_line() -> None:
    argv = planned(ReferenceRuntime(Launch(sites={"server": RoleHosts(port=4321)}))).argv
    assert argv[:3] == (sys.executable, "-m", "dsabench.reference.launch_server")
    assert argv[3:9] == ("--model-path", "tiny", "--host", "127.0.0.1", "--port", "4321")


def test_machines_of_a_server_meet_at_the_first_one() -> None:
    spec = SPEC.model_copy(update={"knobs": {"tp_size": 2}, "topology": Topology(roles=(Role(nodes=2),))})
    processes = ReferenceRuntime(Launch()).plan(spec, cores=(1, 2, 3, 4)).processes
    assert [one.node_rank for one in processes] == [0, 1]
    for one in processes:
        flags = ("--nnodes", "2", "--node-rank", str(one.node_rank), "--dist-init-addr", "127.0.0.1:20000")
        assert one.argv[-8:] == ("--cpu-threads", "2", *flags)
    there = ReferenceRuntime(Launch(sites={"server": RoleHosts(hosts=("10.0.0.1", "10.0.0.2"))}))
    first, second = there.plan(spec, cores=(1, 2, 3, 4)).processes
    assert (*first.argv[5:7], *first.argv[-8:-6]) == ("--host", "10.0.0.1", "--cpu-threads", "4")
    assert second.argv[-1] == "10.0.0.1:20000"


@pytest.mark.parametrize(("knobs", "nodes"), [({"tp_size": 2}, 3), ({}, 2), ({"tp_size": 2, "dp_size": 2}, 2)])
def test_machines_have_as_many_ranks_of_one_replica(knobs: dict[str, int], nodes: int) -> None:
    spec = SPEC.model_copy(update={"knobs": knobs, "topology": Topology(roles=(Role(nodes=nodes),))})
    with pytest.raises(InputError, match=rf"roles\.0\.nodes: {nodes} machines take tp_size ranks of one replica"):
        ReferenceRuntime(Launch()).plan(spec)


def test_env_wins_in_order() -> None:
    launch = Launch(env={"A": "launch", "B": "launch", "PYTHONPATH": "/given"})
    spec = SPEC.model_copy(update={"env": {"B": "spec"}})
    env = planned(ReferenceRuntime(launch), spec).env
    assert (env["A"], env["B"], env["PYTHONPATH"]) == ("launch", "spec", "/given")


def test_variable_set_twice() -> None:
    name = VARIABLES["mha_threshold_tokens"]
    spec = SPEC.model_copy(update={"env": {name: "1"}, "knobs": {"mha_threshold_tokens": 2}})
    with pytest.raises(InputError, match=name):
        planned(ReferenceRuntime(Launch()), spec)


async def test_identity() -> None:
    runtime = ReferenceRuntime(Launch())
    identity = await runtime.identity()
    assert identity == await ReferenceRuntime(Launch(python=Path(sys.executable))).identity()
    assert identity.python == ".".join(map(str, sys.version_info[:3]))
    assert identity.torch
    assert len(identity.wheel_hash) == 64
    with pytest.raises(InputError, match=f"asks for reference 99, installed is {identity.version}"):
        async with runtime.serve(SPEC.model_copy(update={"version": "99"}), Place(folder=Path("x"))):
            pass


async def test_identity_without_torch(tmp_path: Path) -> None:
    python = _environment_without_packages(tmp_path)
    with pytest.raises(InputError, match=r"pip install torch"):
        await ReferenceRuntime(Launch(python=python)).identity()


async def test_identity_of_what_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot run /nowhere/python: No such file"):
        await ReferenceRuntime(Launch(python=Path("/nowhere/python"))).identity()
    with pytest.raises(InputError, match="no working Python"):
        await ReferenceRuntime(Launch(python=Path("/bin/true"))).identity()


def test_relative_interpreter_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = planned(ReferenceRuntime(Launch(python=Path("venv/bin/python")))).argv
    assert argv[0] == str(tmp_path / "venv/bin/python")
    argv = planned(ReferenceRuntime(Launch(python=Path("python3")))).argv
    assert argv[0] == "python3"


def test_hash_sees_content_and_names_but_not_the_place_or_byte_code(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "package").mkdir(parents=True)
        (tmp_path / name / "package" / "x.py").write_text("1")
    first, second = ([tmp_path / name / "package"] for name in ("a", "b"))
    assert hash_of(first) == hash_of(second)
    (tmp_path / "a/package/__pycache__").mkdir()
    (tmp_path / "a/package/__pycache__/x.pyc").write_bytes(b"1")
    assert hash_of(first) == hash_of(second)
    (tmp_path / "a/package/x.py").write_text("2")
    assert hash_of(first) != hash_of(second)


def test_choose() -> None:
    config = RuntimeConfig(
        kind="reference", model="tiny", launch=LaunchConfig(python="x/python", env={"A_KEY": "secret"})
    )
    runtime = make_runtime(config)
    assert isinstance(runtime, ReferenceRuntime)
    assert runtime.launch == Launch(python=Path("x/python"), env={"A_KEY": "secret"})
    assert "secret" not in repr(runtime)
    assert isinstance(make_runtime(config.model_copy(update={"kind": "sglang"})), SglangRuntime)


def _environment_without_packages(folder: Path) -> Path:
    """An interpreter that sees the standard library alone."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python

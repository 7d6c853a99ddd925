from __future__ import annotations

import pytest

from dsabench.config.load import find_mistakes, load_launch, load_study
from dsabench.config.specs import RuntimeConfig
from dsabench.errors import ConfigError
from dsabench.model.hardware import accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, Topology

from .conftest import MINIMAL, Write

SERVER = "name: s\nruntime: {kind: sglang, model: m%s}\n"


def test_a_recipe_is_a_name_and_a_runtime(write: Write) -> None:
    path = write(SERVER % ", hardware: b200, topology: {roles: [{nodes: 2, knobs: {tp_size: 16}}]}")
    runtime = load_launch(path)
    assert find_mistakes(path) == ()
    spec = runtime.spec({})
    assert spec.hardware == "b200"
    assert spec.topology == Topology(roles=(Role(nodes=2, knobs={"tp_size": 16}),))
    assert type(spec.topology) is Topology
    assert RuntimeSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (", base: {mem_fraction_static: 7}", "runtime.base.mem_fraction_static: must be at most 1, not 7"),
        (", launch: {sites: {server: {port: 99999}}}", "runtime.launch.sites.server.port: must be at most 65535"),
    ],
)
def test_a_number_that_no_machine_has(write: Write, more: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_launch(write(SERVER % more))


def test_a_whole_config_can_be_launched_whatever_it_measures(write: Write) -> None:
    text = MINIMAL.replace("kind: reference, model: tiny", "kind: sglang, model: m")
    assert load_launch(write(text + "sweeps: [nowhere]\nbudget: {max_boots: 1}\n")).model == "m"


def test_a_sweep_drives_it(write: Write) -> None:
    config = load_study(write(MINIMAL.replace("kind: reference, model: tiny", "kind: sglang, model: m")))
    assert config.default.kind == "sglang"


def test_an_absent_topology_leaves_the_id_of_a_spec_alone() -> None:
    plain = RuntimeSpec(kind="reference", model="tiny")
    assert plain.id == RuntimeSpec(kind="reference", model="tiny", hardware=None, topology=None).id
    assert plain.id != RuntimeSpec(kind="reference", model="tiny", topology=Topology()).id


@pytest.mark.parametrize(
    ("name", "platform", "capability", "gib"),
    [
        ("b300", "cuda", (10, 3), 268),
        ("MI325X", "rocm", (9, 4), 256),
        ("rtx-pro-6000", "cuda", (12, 0), 96),
        ("sm_89-48gib", "cuda", (8, 9), 48),
        ("SM120-32GB", "cuda", (12, 0), 32),
        ("gfx942-128gib", "rocm", (9, 4), 128),
        ("gfx90a-64gib", "rocm", (9, 0), 64),
    ],
)
def test_any_hardware_by_name_or_by_architecture_and_memory(
    write: Write, name: str, platform: str, capability: tuple[int, int], gib: int
) -> None:
    config = load_launch(
        write(MINIMAL.replace("kind: reference, model: tiny", f"kind: sglang, model: m, hardware: {name}"))
    )
    assert config.hardware == name.lower()
    device = accelerator(config.hardware)
    assert (device.platform, device.capability, device.memory_gib) == (platform, capability, gib)


def test_defaults_of_launch_have_no_effect_on_other_kinds(write: Write) -> None:
    assert isinstance(load_launch(write(MINIMAL)), RuntimeConfig)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (", hardware: h300", "runtime.hardware: h300: unknown hardware (known: h200, "),
        (", topology: {roles: []}", "runtime.topology.roles: must not be empty"),
        (", topology: {roles: [{role: prefil}]}", "runtime.topology.roles[0].role: must be server, prefill or decode"),
        (", topology: {roles: [{knobs: {tp_sise: 1}}]}", "runtime.topology.roles[0].knobs.tp_sise: unknown key"),
        (", topology: {roles: [{}, {role: decode}]}", "runtime.topology: a server does both phases"),
        (", topology: {roles: [{env: {MY_TOKEN: x}}]}", "runtime.topology.roles[0].env.MY_TOKEN: looks like a secret"),
        (", topology: {router: {}}", "runtime.topology: a router needs"),
        (", launch: {sites: {head: {}}}", "runtime.launch.sites.head: unknown role 'head'"),
        (", launch: {sites: {server: {prt: 1}}}", "runtime.launch.sites.server.prt: unknown key 'prt'; did you mean port?"),
        (", launch: {container: {engine: dokcer}}", "runtime.launch.container.engine: must be docker, podman or enroot"),
        (", launch: {entry: server}", "runtime.launch.entry: must be launch_server or serve"),
        (", base_url: 'http://x'", "runtime.base_url: only kind external"),
    ],
)  # fmt: skip
def test_mistakes_of_a_recipe(write: Write, rest: str, said: str) -> None:
    path = write(SERVER % rest)
    (mistake,) = find_mistakes(path)
    assert f"{mistake.key}: {mistake.message}".startswith(said)
    with pytest.raises(ConfigError):
        load_launch(path)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (", hardware: h200", "runtime.hardware: only kind sglang has it"),
        (", topology: {roles: [{knobs: {pp_size: 2}}]}", "runtime.topology.roles[0].knobs.pp_size: the reference runtime has"),
        (", topology: {router: {}}", "runtime.topology: a router needs"),
        (", launch: {entry: serve}", "runtime.launch.entry: only kind sglang has it"),
        (", launch: {command_prefix: [srun]}", "runtime.launch.command_prefix: only kind sglang has it"),
        (", base: {pp_size: 8}", "runtime.base.pp_size: the reference runtime has no such setting (it has kv_cache_dtype, "),
        (", base: {prefill_backend: fa3}", "runtime.base.prefill_backend: the reference runtime takes flashmla_sparse or "),
    ],
)  # fmt: skip
def test_what_the_reference_runtime_does_not_have(write: Write, rest: str, said: str) -> None:
    (mistake,) = find_mistakes(write(MINIMAL.replace("model: tiny", f"model: tiny{rest}")))
    assert f"{mistake.key}: {mistake.message}".startswith(said)


def test_axes_that_the_reference_runtime_does_not_have(write: Write) -> None:
    sweeps = "sweeps: [{axes: {pp_size: [1, 2], dtype: [float32], decode_backend: [flashmla_kv, fa3]}}]\n"
    found = find_mistakes(write(MINIMAL + sweeps))
    assert {error.key for error in found} == {"sweeps[0].axes.pp_size", "sweeps[0].axes.decode_backend"}


def test_external_is_not_launched(write: Write) -> None:
    text = MINIMAL.replace("kind: reference, model: tiny", "kind: external, model: m, base_url: 'http://h:1'")
    with pytest.raises(ConfigError, match="external is not launched by dsabench"):
        load_launch(write(text))

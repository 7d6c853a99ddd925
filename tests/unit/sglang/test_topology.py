from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from dsabench.config.specs import ContainerConfig
from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleHosts, RouterSpec, Topology
from dsabench.runtimes.command import Launch, in_shell, public_env
from dsabench.runtimes.plan import PlannedProcess
from dsabench.runtimes.sites import PORT_STEP
from dsabench.sglang.accepts import from_table
from dsabench.sglang.plan import plan_sglang
from dsabench.sglang.versions import Version

ACCEPTED = from_table(Version(0, 5, 16))
PD = Topology(roles=(Role(role="prefill", instances=2), Role(role="decode", instances=3)), router=RouterSpec())


PLAIN = Launch()


def processes(launch: Launch = PLAIN, **fields: Any) -> tuple[PlannedProcess, ...]:
    spec = RuntimeSpec(kind="sglang", model="m", **fields)
    return plan_sglang(spec, ACCEPTED, launch).processes


def option(process: PlannedProcess, flag: str) -> str | None:
    return process.argv[process.argv.index(flag) + 1] if flag in process.argv else None


def test_a_spec_without_a_topology_is_one_plain_command() -> None:
    (process,) = processes(knobs={"tp_size": 8}, env={"A": "b"})
    assert process.argv == ("python3", "-m", "sglang.launch_server", "--model-path", "m", "--tp-size", "8")
    assert (process.role, process.instance, process.node_rank, process.env) == ("server", 0, 0, {"A": "b"})


def test_the_nodes_of_a_server_differ_in_their_rank_alone() -> None:
    site = RoleHosts(hosts=("a", "b", "c"), port=8000, dist_port=62001)
    nodes = processes(Launch(sites={"server": site}), topology=Topology(roles=(Role(nodes=3),)))
    assert [option(node, "--node-rank") for node in nodes] == ["0", "1", "2"]
    assert {option(node, "--dist-init-addr") for node in nodes} == {"a:62001"}
    assert {option(node, "--nnodes") for node in nodes} == {"3"}
    rest = {tuple(word for word in node.argv if word != option(node, "--node-rank")) for node in nodes}
    assert len(rest) == 1


def ports(process: PlannedProcess) -> Iterator[int]:
    """Everything that a server with DP attention binds: HTTP, handshake, and what is derived from either port."""
    http = int(option(process, "--port") or 30000)
    dist = option(process, "--dist-init-addr")
    base = http + 233 if dist is None else int(dist.rpartition(":")[2])
    yield from (http, *range(base, base + 8), (http if dist is None else base) + 13)
    if bootstrap := option(process, "--disaggregation-bootstrap-port"):
        yield int(bootstrap)


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_two_servers_of_a_deployment_share_a_port(nodes: int) -> None:
    roles = tuple(role.model_copy(update={"nodes": nodes, "instances": 6}) for role in PD.roles)
    servers = [p for p in processes(topology=Topology(roles=roles)) if p.node_rank == 0]
    taken = [port for server in servers for port in ports(server)]
    assert len(servers) == 12
    assert len(taken) == len(set(taken))
    assert PORT_STEP > 233 + 8


def test_the_router_knows_every_server_by_the_address_it_answers_on() -> None:
    *servers, router = processes(topology=PD)
    assert [server.role for server in servers] == ["prefill"] * 2 + ["decode"] * 3
    words = router.argv[3:]
    assert words[:8] == (
        *("--pd-disaggregation", "--prefill", "http://$PREFILL_0_HOST:30000", "8998"),
        *("--prefill", "http://$PREFILL_1_HOST:30300", "8999", "--decode"),
    )
    assert [option(server, "--port") for server in servers] == ["30000", "30300", "30600", "30900", "31200"]
    assert [option(server, "--disaggregation-bootstrap-port") for server in servers[:2]] == ["8998", "8999"]
    assert {option(server, "--host") for server in servers} == {"0.0.0.0"}
    assert router.argv[-2:] == ("--port", "8000")


def test_router_options() -> None:
    topology = PD.model_copy(update={"router": RouterSpec(policy="round_robin", retries=False)})
    sites = {
        "router": RoleHosts(bind="127.0.0.1", port=9000),
        "decode": RoleHosts(urls=("http://x", "http://y", "http://z")),
    }
    router = processes(Launch(sites=sites), topology=topology)[-1]
    assert " ".join(router.argv).endswith(
        "--decode http://x --decode http://y --decode http://z "
        "--policy round_robin --disable-retries --host 127.0.0.1 --port 9000"
    )


def test_a_role_has_its_own_settings_on_top() -> None:
    topology = Topology(roles=(Role(role="prefill"), Role(role="decode", knobs={"tp_size": 4}, env={"A": "d"})))
    prefill, decode = processes(topology=topology, knobs={"tp_size": 8}, env={"A": "b"})
    assert (option(prefill, "--tp-size"), option(decode, "--tp-size")) == ("8", "4")
    assert (prefill.env, decode.env) == ({"A": "b"}, {"A": "d"})
    assert option(decode, "--disaggregation-mode") == "decode"


def test_instances_on_one_machine_take_the_next_gpus() -> None:
    sites = {"prefill": RoleHosts(hosts=("a", "a", "b"))}
    topology = Topology(roles=(Role(role="prefill", instances=3),))
    made = processes(Launch(sites=sites), topology=topology, knobs={"tp_size": 2, "pp_size": 2})
    assert [option(process, "--base-gpu-id") for process in made] == [None, "4", None]


def test_roles_on_one_machine_take_the_next_gpus() -> None:
    sites = {"prefill": RoleHosts(hosts=("a",)), "decode": RoleHosts(hosts=("a", "b", "a"))}
    topology = Topology(roles=(Role(role="prefill"), Role(role="decode", instances=3, knobs={"tp_size": 2})))
    made = processes(Launch(sites=sites), topology=topology, knobs={"tp_size": 4})
    assert [option(process, "--base-gpu-id") for process in made] == [None, "4", None, "6"]


def test_whole_replicas_take_gpus_of_their_own() -> None:
    sites = {"prefill": RoleHosts(hosts=("a",)), "decode": RoleHosts(hosts=("a",))}
    topology = Topology(roles=(Role(role="prefill", knobs={"dp_size": 2}), Role(role="decode")))
    made = processes(Launch(sites=sites), topology=topology, knobs={"tp_size": 2})
    assert [option(process, "--base-gpu-id") for process in made] == [None, "4"]


def test_roles_that_see_other_devices_count_from_the_first() -> None:
    """Whoever says which devices a role sees has shared the machine out already."""
    sites = {"prefill": RoleHosts(hosts=("a",)), "decode": RoleHosts(hosts=("a",))}
    decode = Role(role="decode", env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    made = processes(Launch(sites=sites), topology=Topology(roles=(Role(role="prefill"), decode)))
    assert [option(process, "--base-gpu-id") for process in made] == [None, None]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_half_of_a_deployment_can_be_reached_by_the_other(role: Any) -> None:
    (process,) = processes(topology=Topology(roles=(Role(role=role),)))
    assert option(process, "--host") == "0.0.0.0"
    (here,) = processes(
        Launch(sites={role: RoleHosts(hosts=("127.0.0.1",))}), topology=Topology(roles=(Role(role=role),))
    )
    assert option(here, "--host") is None


def test_several_machines_that_are_shared() -> None:
    sites = {"prefill": RoleHosts(hosts=("a", "b")), "decode": RoleHosts(hosts=("b", "c"))}
    roles = tuple(Role(role=name, nodes=2) for name in ("prefill", "decode"))
    made = processes(Launch(sites=sites), topology=Topology(roles=roles), knobs={"tp_size": 8})
    assert [option(process, "--base-gpu-id") for process in made] == [None, None, "4", "4"]


def test_placeholders_are_other_machines_for_each_role() -> None:
    """`$HOST` is each machine's own address."""
    sites = {name: RoleHosts(hosts=("$HOST",), port=30000) for name in ("prefill", "decode")}
    topology = Topology(roles=(Role(role="prefill"), Role(role="decode")))
    made = processes(Launch(sites=sites), topology=topology)
    assert [option(process, "--base-gpu-id") for process in made] == [None, None]


ON_A = RoleHosts(hosts=("a",))


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (
            {"prefill": RoleHosts(hosts=("a",), port=30000), "decode": RoleHosts(hosts=("a",), port=30000)},
            "sites.decode: port 30000 on a is prefill's port already",
        ),
        (
            {"prefill": RoleHosts(hosts=("a",), port=30000), "decode": RoleHosts(hosts=("a",), port=30234)},
            "sites.decode: port 30234 on a is prefill's port of DP attention already",
        ),
        ({"prefill": ON_A, "decode": RoleHosts(hosts=("a",), port=8998)}, "port 8998 on a is prefill's bootstrap_port"),
        ({"prefill": ON_A, "decode": ON_A, "router": RoleHosts(hosts=("a",), port=30300)}, "router: port 30300 on a"),
    ],
)
def test_ports_that_meet_on_one_machine(sites: dict[str, RoleHosts], said: str) -> None:
    topology = Topology(roles=(Role(role="prefill"), Role(role="decode")), router=RouterSpec())
    with pytest.raises(InputError, match=said):
        processes(Launch(sites=sites), topology=topology, knobs={"tp_size": 4, "dp_size": 4, "dp_attention": True})


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(ValidationError):
        RoleHosts(port=port)


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ({"server": RoleHosts()}, "sites.server: the topology has no such role"),
        ({"prefill": RoleHosts(hosts=("a",))}, "sites.prefill.hosts: 1 for 2 machines"),
        ({"prefill": RoleHosts(urls=("a",))}, "sites.prefill.urls: 1 for 2 instances"),
        ({"prefill": RoleHosts(port="$PORT")}, "sites.prefill.port: 2 instances need a number"),
    ],
)
def test_places_that_do_not_fit(sites: dict[str, RoleHosts], said: str) -> None:
    with pytest.raises(InputError, match=said):
        processes(Launch(sites=sites), topology=PD)


@pytest.mark.parametrize(
    ("roles", "router", "said"),
    [
        (("prefill", "prefill"), None, "stands twice"),
        (("server", "decode"), None, "cannot stand beside"),
        (("prefill",), RouterSpec(), "needs a prefill and a decode"),
    ],
)
def test_roles_that_do_not_fit(roles: tuple[Any, ...], router: RouterSpec | None, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Topology(roles=tuple(Role(role=name) for name in roles), router=router)


def test_prefix_and_serve() -> None:
    sites = {"server": RoleHosts(hosts=("n1",))}
    prefix = ("srun", "--nodelist={host}")
    (process,) = processes(Launch(entry="serve", command_prefix=prefix, env={"P": "/x y"}, sites=sites))
    assert process.argv[:6] == ("srun", "--nodelist=n1", "env", "P=/x y", "sglang", "serve")
    assert process.env == {}


def test_ssh_gets_one_text_that_the_other_shell_takes_apart_again() -> None:
    launch = Launch(command_prefix=("ssh", "{host}"))
    (process,) = processes(launch, knobs={"model_overrides": '{"num_hidden_layers": 5}'})
    assert process.argv[:2] == ("ssh", "$SERVER_HOST")
    remote = shlex.split(" ".join(process.argv[2:]))
    assert remote[-2:] == ["--json-model-override-args", '{"num_hidden_layers": 5}']


@pytest.mark.parametrize("secret", ["hunter2", "hunter2 with 'quotes' and $more"])
@pytest.mark.parametrize("prefix", [(), ("srun",), ("ssh", "h")])
@pytest.mark.parametrize("container", [None, ContainerConfig()])
def test_secrets_are_left_to_the_shell(secret: str, prefix: tuple[str, ...], container: ContainerConfig | None) -> None:
    launch = Launch(env={"HF_TOKEN": secret}, command_prefix=prefix, container=container)
    (process,) = processes(launch)
    printed = in_shell(process.argv, public_env(process.env)) + str(process.public())
    assert "hunter2" not in printed
    assert "HF_TOKEN" in printed


@pytest.mark.parametrize(
    ("engine", "hardware", "image", "parts"),
    [
        ("docker", "h200", None, ["--gpus", "all", "lmsysorg/sglang:latest"]),
        ("docker", "mi355x", None, ["/dev/kfd", "lmsysorg/sglang:v0.5.8-rocm700-mi35x"]),
        ("docker", "npu", None, ["/dev/davinci_manager", "lmsysorg/sglang:dsv32-a2"]),
        ("podman", "b200", "mine:1", ["nvidia.com/gpu=all", "mine:1"]),
        ("enroot", "h200", "mine", ["start", "--rw", "mine"]),
    ],
)
def test_containers(engine: Any, hardware: str, image: str | None, parts: list[str]) -> None:
    container = ContainerConfig(engine=engine, image=image, mounts=("/models:/models",), shm="32g")
    launch = Launch(container=container, env={"HF_TOKEN": "hunter2", "HF_HOME": "/models"})
    (process,) = processes(launch, hardware=hardware, env={"SGLANG_SET_CPU_AFFINITY": "1"})
    assert process.argv[0] == engine
    assert [part for part in parts if part not in process.argv] == []
    inside = process.argv[process.argv.index("python3") :]
    assert inside[:4] == ("python3", "-m", "sglang.launch_server", "--model-path")
    words = " ".join(process.argv)
    assert "-e HF_HOME=/models -e SGLANG_SET_CPU_AFFINITY=1" in words
    assert "/models:/models" in words
    assert "hunter2" not in words
    assert process.env == {"HF_TOKEN": "hunter2"}
    assert "hunter2" not in in_shell(process.argv, public_env(process.env)) + str(process.public())


def test_a_container_needs_an_image_that_is_known() -> None:
    launch = Launch(container=ContainerConfig())
    assert "lmsysorg/sglang:latest" in processes(launch)[0].argv
    assert "lmsysorg/sglang:latest" in processes(launch, hardware="h20")[0].argv


def test_pasted_into_a_shell_the_words_are_the_words() -> None:
    knobs = {"model_overrides": '{"a b": "c\'d"}', "served_model_name": "x y"}
    (process,) = processes(knobs=knobs, env={"A": "b c"})
    words = shlex.split(in_shell(process.argv, process.env).replace("\\\n", " "))
    assert words == ["A=b c", *process.argv]


def test_placeholders_stay_open_to_the_shell() -> None:
    site = RoleHosts(hosts=("$HEAD", "<SECOND_NODE>"), dist_port="$PORT")
    first, _ = processes(Launch(sites={"server": site}), topology=Topology(roles=(Role(nodes=2),)))
    assert "--dist-init-addr $HEAD:$PORT" in in_shell(first.argv, first.env)

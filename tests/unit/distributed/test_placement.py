"""Which nodes a deployment of several machines gets, and how its processes are started there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.config.load import load_study
from dsabench.distributed import on_node
from dsabench.distributed.placement import Placement, on_one_node
from dsabench.distributed.ray_cluster import sets_of_nodes
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, Topology
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import gpus_of, machines_of
from dsabench.study.context import needs_of
from dsabench.study.machines import Needs

_CAP_SYS_NICE = 23  # capability.h
CONFIGS = Path(__file__).parents[3] / "configs"
PLACEMENT = Placement(
    address="10.0.0.1:6379", namespace="n", group="g", hosts=("10.0.0.1", "10.0.0.2"), gpus=(8, 8),
    starter="10.0.0.1", has_gpus=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "needs"),
    [
        ("h200-pd", Needs(16, (8, 8))),
        ("h800-2node", Needs(16, (8, 8), apart=True)),
        ("h200", Needs(8, (8,))),
        ("local-pd", Needs(0, (0, 0))),
    ],
)
def test_what_the_largest_setting_takes(config: str, needs: Needs) -> None:
    study = load_study(CONFIGS / f"{config}.yaml")
    assert needs_of(study, make_runtime(study.runtime).gpus) == needs


@pytest.mark.parametrize(("divides", "gpus"), [("dp_attention", 8), ("prefill_cp", 8), ("prefix_cache", 16)])
def test_copies_of_the_model_take_gpus_of_their_own(divides: str, gpus: int) -> None:
    role = Role(role="server", nodes=2)
    knobs = {"tp_size": 8, "dp_size": 2, divides: True}
    spec = RuntimeSpec(kind="sglang", model="m", knobs=knobs, topology=Topology(roles=(role,)))
    assert gpus_of(spec) == gpus
    assert machines_of(spec, gpus_of) == (gpus // 2, gpus // 2)
    assert machines_of(spec, lambda _: 0) == (0, 0)


def test_hosts_go_to_roles_in_order_and_the_router_stays_on_loopback() -> None:
    runtime = PLACEMENT.launched(load_study(CONFIGS / "h200-pd.yaml").runtime)
    sites = runtime.launch.sites
    assert sites["prefill"].hosts == ("10.0.0.1",)
    assert sites["decode"].hosts == ("10.0.0.2",)
    assert (sites["router"].hosts, sites["router"].bind) == (("127.0.0.1",), "127.0.0.1")
    python, *_, placement, host = runtime.launch.command_prefix
    assert (python, host) == (sys.executable, "{host}")
    assert Placement.model_validate_json(placement) == PLACEMENT


def test_ports_of_the_config_are_kept() -> None:
    runtime = PLACEMENT.launched(load_study(CONFIGS / "h800-2node.yaml").runtime)
    site = runtime.launch.sites["server"]
    assert site.hosts == PLACEMENT.hosts
    assert (site.bind, site.port, site.dist_port) == ("0.0.0.0", 30000, 20000)


def test_a_prefix_that_names_the_machine_gives_way() -> None:
    runtime = load_study(CONFIGS / "h200-pd.yaml").runtime
    assert on_one_node(runtime).launch.command_prefix == ()
    assert {site.hosts for site in on_one_node(runtime).launch.sites.values()} == {()}
    numactl = ("numactl", "--cpunodebind=0")
    kept = runtime.model_copy(update={"launch": runtime.launch.model_copy(update={"command_prefix": numactl})})
    assert on_one_node(kept).launch.command_prefix == numactl
    assert PLACEMENT.launched(kept).launch.command_prefix[-2:] == numactl


def node(address: str, gpus: int) -> dict[str, object]:
    return {"NodeManagerAddress": address, "Resources": {"GPU": gpus}}


def test_each_set_has_nodes_of_its_own() -> None:
    nodes = [node("a", 8), node("b", 8), node("c", 8), node("d", 4), node("e", 8)]
    found = [[one["NodeManagerAddress"] for one in chosen] for chosen in sets_of_nodes(nodes, (8, 8))]
    assert found == [["a", "b"], ["c", "e"]]
    unequal = [[one["NodeManagerAddress"] for one in chosen] for chosen in sets_of_nodes(nodes, (4, 8))]
    assert unequal == [["d", "a"], ["c", "b"]], "the larger machine is found first"
    assert not list(sets_of_nodes(nodes, (8, 16)))


def test_two_nodes_of_one_address_are_one_machine() -> None:
    assert not list(sets_of_nodes([node("a", 8), node("a", 8)], (8, 8)))


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1"])
def test_on_its_own_host_a_command_is_started_as_it_is(host: str) -> None:
    words = [sys.executable, "-c", "import sys; print(sys.stdin.read() + '!'); sys.exit(7)"]
    argv = [sys.executable, "-P", on_node.__file__, PLACEMENT.model_dump_json(), host, *words]
    done = subprocess.run(argv, input="fed", capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (7, "fed!\n")


def test_the_far_end_feeds_a_command_and_tells_its_end() -> None:
    hands = on_node.Hands([sys.executable, "-c", "import sys; print(sys.stdin.read()); sys.exit(3)"])
    hands.feed(b"\n")
    hands.feed(b"fed")
    hands.feed(b"")
    hands.feed(b"")
    *pieces, code = hands.output()
    assert b"".join(one for one in pieces if isinstance(one, bytes)) == b"\nfed\n"
    assert code == 3


def test_a_program_that_the_far_end_has_not_is_a_line() -> None:
    hands = on_node.Hands(["no-such-program"])
    hands.feed(b"\n")
    assert list(hands.output()) == [b"dsabench: cannot run no-such-program: No such file or directory\n", 127]


def test_the_number_of_threads_that_ray_sets_reaches_no_server() -> None:
    """It sets one where none is told."""
    program = (
        "import json, os; from dsabench.distributed.on_node import as_node_was_started;"
        "os.environ.setdefault('OMP_NUM_THREADS', '1'); as_node_was_started();"
        "print(json.dumps(os.environ.get('OMP_NUM_THREADS')))"
    )
    for given, seen in ((None, None), ("4", "4")):
        env = {"PATH": "/usr/bin"} | ({} if given is None else {"OMP_NUM_THREADS": given})
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == seen


def test_the_niceness_that_ray_sets_reaches_no_server() -> None:
    """Nor does any thread keep it: which one starts the server is not known."""
    program = (
        "import os, threading; from dsabench.distributed.on_node import as_node_was_started;"
        "os.nice(15); over = threading.Event(); threading.Thread(target=over.wait).start();"
        "left = as_node_was_started(); tasks = os.listdir('/proc/self/task');"
        "print(len(tasks), left, {os.getpriority(os.PRIO_PROCESS, int(one)) for one in tasks}); over.set()"
    )
    env = {"PATH": "/usr/bin", "RAY_RAYLET_PID": str(os.getpid())}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    capabilities = Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
    may_lower = bool(int(capabilities, 16) >> _CAP_SYS_NICE & 1)
    assert done.stdout == (f"2 0 {{{own}}}\n" if may_lower else f"2 15 {{{own + 15}}}\n")

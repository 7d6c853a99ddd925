"""The embedded runtime, `python -m dsabench.reference.launch_server`, run as a program like any other."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from pydantic import JsonValue

from dsabench.errors import InputError
from dsabench.machine.checks import Finding, ok, warning
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE, Role, RoleHosts, RouterSpec
from dsabench.model.value import KnobValue
from dsabench.reference.engine.sizes import SIZES
from dsabench.runtimes.command import Launch, enclose
from dsabench.runtimes.deployment import Deployment, ServerProgram, run_deployment
from dsabench.runtimes.plan import LaunchPlan, PlannedProcess, instances_of, role_specs, router_words, settled_knobs
from dsabench.runtimes.ports import HOST
from dsabench.runtimes.protocol import AttentionShape, Place, PlainRuntime
from dsabench.runtimes.readback import KnobReadback, read_knobs
from dsabench.runtimes.sites import ROUTER_PORT, Post, ranks_of

_MODULE = "dsabench.reference.launch_server"
_ROUTER_MODULE = "dsabench.reference.router"
_IDENTIFY = Path(__file__).with_name("identify.py")
_IDENTIFY_TIMEOUT_S = 60.0
FLAGS = {
    "kv_cache_dtype": "--kv-cache-dtype",
    "prefill_backend": "--dsa-prefill-backend",
    "decode_backend": "--dsa-decode-backend",
    "chunked_prefill_size": "--chunked-prefill-size",
    "max_running_requests": "--max-running-requests",
    "pp_max_micro_batch_size": "--pp-max-micro-batch-size",
    "max_total_tokens": "--max-total-tokens",
    "context_length": "--context-length",
    "dtype": "--dtype",
    "random_seed": "--random-seed",
    "device": "--device",
    "cpu_threads": "--cpu-threads",
    "tp_size": "--tp-size",
    "dp_size": "--dp-size",
    "ep_size": "--ep-size",
    "speculative_algorithm": "--speculative-algorithm",
    "speculative_num_steps": "--speculative-num-steps",
    "speculative_eagle_topk": "--speculative-eagle-topk",
    "speculative_num_draft_tokens": "--speculative-num-draft-tokens",
}
"""Knobs that are a flag with a value."""
VARIABLES = {
    "mha_threshold_tokens": "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD",
    "simulated_accept_length": "SGLANG_SIMULATE_ACC_LEN",
}
"""Knobs that are an environment variable, as in sglang."""
OVERRIDES = {"index_topk_pattern": "index_topk_pattern"}
"""Knobs that are a key of the model's config."""
SWITCHES = {
    "prefix_cache": "--disable-radix-cache",
    "dp_attention": "--enable-dp-attention",
    "hisparse": "--enable-hisparse",
}
"""Knobs that a flag without a value switches: the first off, the others on."""
HISPARSE = {
    "hisparse_top_k": "top_k",
    "hisparse_device_buffer_size": "device_buffer_size",
    "hisparse_host_to_device_ratio": "host_to_device_ratio",
    "hisparse_swap_in_block_size": "swap_in_block_size",
}
"""Knobs that are a key of `--hisparse-config`; they mean nothing without `hisparse`."""
KNOWN = {*FLAGS, *VARIABLES, *OVERRIDES, *HISPARSE, *SWITCHES}
"""All knobs of this runtime."""


@dataclass(frozen=True)
class ReferenceRuntime(PlainRuntime):
    """A `Runtime` for `kind: reference`."""

    launch: Launch

    async def identity(self, version: str | None = None) -> RuntimeIdentity:
        """What is installed under the interpreter; see `Runtime.identity`."""
        if version is not None:
            raise InputError("a plan for another version is for kind sglang")
        return await asyncio.to_thread(lambda: self._identity)

    def attention(self, spec: RuntimeSpec) -> AttentionShape:
        """The whole model on one rank; see `Runtime.attention`."""
        size = SIZES[spec.model]
        return AttentionShape("reference", size.heads, size.index_topk, size.layers)

    def readback(self, spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> tuple[KnobReadback, ...]:
        """As /server_info says it; see `Runtime.readback`."""
        del version
        return read_knobs(spec, resolved, lambda name: _runs_as(name, resolved), by_text=True)

    async def examine(self, driver_cuda: str | None) -> list[Finding]:
        """Whether its torch is installed beside dsabench; see `Runtime.examine`."""
        del driver_cuda
        if importlib.util.find_spec("torch") is not None:
            return [ok("reference runtime", "torch is installed beside dsabench")]
        fix = f"{shlex.quote(sys.executable)} -m pip install torch"
        return [warning("reference runtime", "torch is not installed beside dsabench, so it cannot run", fix)]

    @asynccontextmanager
    async def serve(self, spec: RuntimeSpec, place: Place) -> AsyncIterator[Deployment]:
        """Boot the spec; see `Runtime.serve`."""
        identity = await self.identity()
        if spec.version not in {None, identity.version}:
            raise InputError(f"the config asks for reference {spec.version}, installed is {identity.version}")
        program = ServerProgram(lambda launch: self._planned(spec, launch, place.cores))
        async with run_deployment(spec, program, self.launch, place) as server:
            server.resolved = await _read_back(server)
            yield server

    def plan(
        self,
        spec: RuntimeSpec,
        version: str | None = None,
        *,
        sites: Mapping[str, RoleHosts] | None = None,
        cores: Sequence[int] = (),
    ) -> LaunchPlan:
        """One command per machine of a server, and the router's; see `Runtime.plan`.

        Servers share the cores; none given means those of this process. Ports that no site names are sglang's defaults.
        """
        del version
        launch = replace(self.launch, sites={**self.launch.sites, **(sites or {})})
        return self._planned(spec, launch, cores)

    def _planned(self, spec: RuntimeSpec, launch: Launch, cores: Sequence[int]) -> LaunchPlan:
        sites = launch.sites
        topology = spec.topology or SINGLE
        places: dict[str, RoleHosts] = {role.role: _placed(role, sites) for role in topology.roles}
        posts = tuple(instances_of(topology, places))
        sharing = sum(role.instances * role.nodes for role in topology.roles if set(places[role.role].hosts) == {HOST})
        threads = max(1, len(cores or os.sched_getaffinity(0)) // max(sharing, 1))
        processes: list[PlannedProcess] = []
        for number, (role, own) in enumerate(role_specs(spec)):
            _check_nodes(f"runtime.topology.roles.{number}.nodes", role, own)
            flags, env = self._rendered(own, threads)
            for post, node in product(posts, range(role.nodes)):
                if post.role == role:
                    bind = post.site.bind or post.host()
                    head = (str(self.python), "-m", _MODULE, "--model-path", spec.model, "--host", bind)
                    words = (*head, "--port", str(post.http), *flags, *post.role_words(node))
                    argv, outside = enclose(words, env, launch, post.host(node))
                    processes.append(PlannedProcess(role.role, post.instance, node, argv, outside, term_all=True))
        if topology.router is not None:
            processes.append(self._router(posts, topology.router, launch))
        return LaunchPlan(tuple(processes))

    def _rendered(self, spec: RuntimeSpec, threads: int) -> tuple[tuple[str, ...], dict[str, str]]:
        """Flags and environment of a server."""
        flags, variables = render(spec.knobs)
        if twice := sorted(variables.keys() & spec.env.keys()):
            raise InputError(f"{twice[0]} is set in env, and by a knob as well; drop one of them")
        if "cpu_threads" not in spec.knobs:
            flags = (*flags, FLAGS["cpu_threads"], str(threads))
        return flags, {**self.source_path, **self.launch.env, **spec.env, **variables}

    def _router(self, posts: Sequence[Post], router: RouterSpec, launch: Launch) -> PlannedProcess:
        site = launch.sites.get(ROUTER, RoleHosts())
        words = (str(self.python), "-m", _ROUTER_MODULE, *router_words(posts, router))
        words = (*words, "--host", HOST, "--port", str(site.port or ROUTER_PORT))
        argv, env = enclose(words, {**self.source_path, **launch.env}, launch)
        return PlannedProcess(ROUTER, 0, 0, argv, env, term_all=True)

    @property
    def python(self) -> Path:
        """The interpreter."""
        given = self.launch.python
        if given is None:
            return Path(sys.executable)
        # The server's working directory is another one. Links are kept: they are how an environment finds itself.
        return given.expanduser().absolute() if len(given.parts) > 1 else given

    @property
    def source_path(self) -> dict[str, str]:
        """PYTHONPATH for the child when dsabench runs from a source checkout; else it is installed there, or missing."""
        specs = [importlib.util.find_spec(name) for name in ("dsabench", "dsakernels")]
        roots = [str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin]
        sources = [root for root in roots if Path(root).name not in {"site-packages", "dist-packages"}]
        return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(sources))} if sources else {}

    @cached_property
    def _identity(self) -> RuntimeIdentity:
        facts = self._facts()
        if facts["torch"] is None:
            raise InputError(
                f"{self.python} has no PyTorch, which the reference runtime needs: {self.python} -m pip install torch"
            )
        if facts["wheel_hash"] is None:
            raise InputError(f"{self.python} has no dsabench: install this one there too (README, first command)")
        return RuntimeIdentity.model_validate({"kind": "reference", **facts})

    def _facts(self) -> Mapping[str, str | None]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {**self.source_path, **self.launch.env, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(
                [self.python, _IDENTIFY],
                env=env,
                capture_output=True,
                text=True,
                timeout=_IDENTIFY_TIMEOUT_S,
                check=True,
            )
            facts: Mapping[str, str | None] = json.loads(done.stdout)
        except OSError as error:
            raise InputError(f"runtime.launch.python: cannot run {self.python}: {error.strerror}") from error
        except (subprocess.SubprocessError, json.JSONDecodeError) as error:
            raise InputError(
                f"runtime.launch.python: {self.python} is no working Python 3.11 or later: {error}"
            ) from error
        return facts


def _runs_as(name: str, resolved: Mapping[str, JsonValue]) -> JsonValue | None:
    """What /server_info says of a knob: under its flag's name, else among what sglang has no flag for."""
    flag = FLAGS.get(name) or SWITCHES.get(name)
    told = None if flag is None else resolved.get(flag.removeprefix("--").replace("-", "_"))
    if isinstance(told, bool) and name == "prefix_cache":
        return not told
    if told is not None:
        return told
    if name == "speculative_algorithm" and name in resolved:
        return "off"
    own = resolved.get("reference")
    return own.get(name) if isinstance(own, Mapping) else None


def _placed(role: Role, sites: Mapping[str, RoleHosts]) -> RoleHosts:
    """Where the role's servers stand: on this machine, where no site names another."""
    site = sites.get(role.role, RoleHosts())
    return site if site.hosts else site.model_copy(update={"hosts": (HOST,) * role.instances * role.nodes})


def _check_nodes(place: str, role: Role, spec: RuntimeSpec) -> None:
    ranks = ranks_of(spec.knobs)
    if role.nodes > 1 and (ranks % role.nodes or ranks != int(spec.knobs.get("tp_size", 1))):
        raise InputError(f"{place}: {role.nodes} machines take tp_size ranks of one replica, as many on each")


async def _read_back(roles: Deployment) -> Mapping[str, JsonValue]:
    """The settings of each server by name, and of vocabulary and weights what a single server says of them."""
    infos = await roles.infos("boot")
    if len(roles.servers) == 1:
        return infos
    first = infos.get(roles.servers[0].name)
    match first:
        case {"reference": {"vocab_size": int(vocab_size)}, "load_format": str(load_format)}:
            return {**infos, "reference": {"vocab_size": vocab_size}, "load_format": load_format}
    return infos


def render(knobs: Mapping[str, KnobValue]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Flags and environment variables of canonical knobs, in a fixed order.

    Raises:
        InputError: a knob that the reference runtime does not have, or a switch that is neither true nor false.

    """
    knobs = settled_knobs(knobs)
    flags: list[str] = []
    for name, value in sorted(knobs.items()):
        if name not in KNOWN:
            raise InputError(f"{name}: the reference runtime has no such knob (it has {', '.join(sorted(KNOWN))})")
        if name in FLAGS:
            flags += [FLAGS[name], str(value)]
        elif name in SWITCHES:
            if not isinstance(value, bool):
                raise InputError(f"{name}: {value!r} is neither true nor false")
            flags += [SWITCHES[name]] if value is not (name == "prefix_cache") else []
    if knobs.get("hisparse") is True:
        flags += _as_json("--hisparse-config", HISPARSE, knobs)
    flags += _as_json("--json-model-override-args", OVERRIDES, knobs)
    return tuple(flags), {variable: str(knobs[name]) for name, variable in VARIABLES.items() if name in knobs}


def _as_json(flag: str, keys: Mapping[str, str], knobs: Mapping[str, KnobValue]) -> list[str]:
    """A flag whose value is an object of those knobs that are set; nothing where none is."""
    given = {key: knobs[name] for name, key in keys.items() if name in knobs}
    return [flag, json.dumps(given)] if given else []

"""Which checks a request asks for, and their findings in the order in which they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import RuntimeConfig
from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.bottleneck import find_bottleneck
from dsabench.doctor.server import check_server
from dsabench.doctor.watch import watch
from dsabench.errors import InputError, TrialFault
from dsabench.machine.checks import (
    Finding,
    ModelWeights,
    check_device,
    check_disk,
    check_gpus,
    check_limits,
    check_shared_memory,
    ok,
    problem,
    read_limits,
)
from dsabench.machine.environment import collect_hardware
from dsabench.model.bottleneck import Bottleneck
from dsabench.model.environment import Hardware
from dsabench.model.hardware import Platform, accelerator
from dsabench.runtimes.command import Launch
from dsabench.runtimes.kinds import make_runtime, runtime_of
from dsabench.runtimes.ports import PortLease, is_free
from dsabench.sglang.model_config import local_folder
from dsabench.sglang.models import find_model

_OTHER_DEVICES: Mapping[Platform, tuple[Path, str]] = {
    "rocm": (Path("/dev/kfd"), "rocm-smi   # in a container: docker run --device /dev/kfd --device /dev/dri …"),
    "npu": (Path("/dev/davinci_manager"), "npu-smi info"),
}
"""Platform that nvidia-smi does not know → what is there where its driver is, and the command that shows more."""


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What is to be looked at. With a server alone, this machine is only its client."""

    runtime: RuntimeConfig | None = None
    python: Path | None = None
    """Interpreter of sglang; wins over the config's."""
    base_url: str | None = None
    api_key_env: str | None = None
    """Variable that holds the server's API key."""
    results: Path = Path("results")
    timeout_s: float = 120.0
    question_timeout_s: float = 60.0

    @property
    def server(self) -> str | None:
        """The server to ask."""
        return self.base_url or (self.runtime.base_url if self.runtime else None)

    @property
    def wants_sglang(self) -> bool:
        """Whether sglang is to be started on this machine."""
        return self.python is not None or (self.runtime is not None and runtime_kinds()[self.runtime.kind].needs_gpus)

    @property
    def is_client(self) -> bool:
        """Whether nothing is to be started here."""
        return self.server is not None and not self.wants_sglang


async def run_checks(complaint: DoctorOptions, tell: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Every finding; `tell` hears what is looked at next.

    Raises:
        InputError: an interpreter, URL or variable that was named is not there.

    """
    asker = _asker(complaint, tell)
    if complaint.is_client:
        found = check_limits(read_limits())[:1]
    else:
        tell("this machine")
        hardware = await collect_hardware()
        found = [*await _machine(complaint, hardware), *await _installation(complaint, hardware)]
    return found if asker is None else [*found, *await check_server(asker)]


async def run_watch(
    complaint: DoctorOptions, seconds: float, tell: Callable[[str], None] = lambda _: None
) -> Bottleneck | Finding:
    """What limits a running server under the load that it has, or the problem that hides it.

    Raises:
        InputError: no server is named.

    """
    asker = _asker(complaint, tell)
    if asker is None:
        raise InputError("--watch looks at a running server: name it with --base-url")
    window = await watch(asker, seconds)
    return window if isinstance(window, Finding) else find_bottleneck(window)


def _asker(complaint: DoctorOptions, tell: Callable[[str], None]) -> ServerProbe | None:
    if complaint.server is None:
        return None
    parts = urlsplit(complaint.server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"--base-url {complaint.server}: write http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise InputError("--base-url: no user or password in the URL; a key goes through --api-key-env")
    key = None
    if complaint.api_key_env is not None:
        key = os.environ.get(complaint.api_key_env)
        if not key:
            raise InputError(f"--api-key-env {complaint.api_key_env}: the variable is not set")
    base_url = complaint.server.rstrip("/")
    return ServerProbe(base_url, complaint.timeout_s, complaint.question_timeout_s, api_key=key, tell=tell)


async def _machine(complaint: DoctorOptions, hardware: Hardware) -> list[Finding]:
    runtime = complaint.runtime
    weights = port = None
    if runtime is not None and runtime_kinds()[runtime.kind].needs_gpus:
        weights = _weights(runtime)
        site = runtime.launch.sites.get("server")
        port = site.port if site is not None and isinstance(site.port, int) else None
    found = []
    if runtime is not None and runtime.launch.command_prefix:
        prefix = " ".join(runtime.launch.command_prefix)
        found.append(ok("machine", f"this one; the runtime is started behind `{prefix}`: look there too"))
    named = runtime.hardware if runtime is not None else None
    other = None if named is None else _OTHER_DEVICES.get(accelerator(named).platform)
    return [
        *found,
        *([check_device(*other)] if other else check_gpus(hardware, needed=complaint.wants_sglang)),
        *check_limits(read_limits()),
        check_shared_memory(len(hardware.gpus)),
        *check_disk(complaint.results, weights),
        await check_ports(port),
    ]


def _weights(runtime: RuntimeConfig) -> ModelWeights | None:
    """What has to be on disk; None where the weights are made at random."""
    if runtime.base.get("load_format") == "dummy":
        return None
    folder = local_folder(runtime.model)
    if folder is not None:
        return ModelWeights(str(folder), None)
    known = find_model(runtime.model)
    return ModelWeights(known.path if known else runtime.model, known.weights_gib if known else None)


async def _installation(complaint: DoctorOptions, hardware: Hardware) -> list[Finding]:
    if not complaint.wants_sglang:
        line = "not looked at: name its interpreter with --python, or a config of kind sglang"
        return [*await runtime_of("reference", Launch()).examine(hardware.cuda), ok("sglang", line)]
    if complaint.python is not None or complaint.runtime is None:
        return await runtime_of("sglang", Launch(python=complaint.python)).examine(hardware.cuda)
    return await make_runtime(complaint.runtime).examine(hardware.cuda)


async def check_ports(wanted: int | None) -> Finding:
    """Whether a server can listen: on the port that a config names, else on one that dsabench picks."""
    if wanted is not None:
        if is_free(wanted):
            return ok("ports", f"{wanted} is free")
        return problem("ports", f"{wanted} is taken", f"ss -ltnp 'sport = :{wanted}'")
    try:
        async with PortLease() as lease:
            return ok("ports", f"free ones are there ({lease.port})")
    except TrialFault as fault:
        return problem("ports", fault.message, "ss -ltn | wc -l")

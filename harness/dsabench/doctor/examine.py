"""Which checks a request asks for, and their findings in the order in which they are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dsabench.config.specs import RuntimeConfig
from dsabench.doctor.ask import Asker
from dsabench.doctor.finding import Finding, ok
from dsabench.doctor.installation import look_at_reference, look_at_sglang
from dsabench.doctor.machine import (
    Weights,
    look_at_device,
    look_at_disk,
    look_at_gpus,
    look_at_limits,
    look_at_ports,
    look_at_shared_memory,
    read_limits,
)
from dsabench.doctor.server import look_at_server
from dsabench.errors import InputError
from dsabench.machine.environment import collect_hardware
from dsabench.model.environment import Hardware
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.sglang.model_config import local_folder
from dsabench.runtimes.sglang.models import find_model
from dsabench.runtimes.sglang.rules.resolve import WEIGHTS_GIB

_AMD = (Path("/dev/kfd"), "rocm-smi   # in a container: docker run --device /dev/kfd --device /dev/dri …")
_OTHER_DEVICES = {"mi300x": _AMD, "mi355x": _AMD, "npu": (Path("/dev/davinci_manager"), "npu-smi info")}
"""Hardware that nvidia-smi does not know → what is there where its driver is, and the command that shows more."""


@dataclass(frozen=True, slots=True)
class Complaint:
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
        return self.python is not None or (self.runtime is not None and self.runtime.kind == "sglang")

    @property
    def is_client(self) -> bool:
        """Whether nothing is to be started here."""
        return self.server is not None and not self.wants_sglang


async def examine(complaint: Complaint, tell: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Every finding; `tell` hears what is looked at next.

    Raises:
        InputError: an interpreter, URL or variable that was named is not there.

    """
    asker = _asker(complaint, tell)
    if complaint.is_client:
        found = look_at_limits(read_limits())[:1]
    else:
        tell("this machine")
        hardware = await collect_hardware()
        found = [*await _machine(complaint, hardware), *await _installation(complaint, hardware)]
    return found if asker is None else [*found, *await look_at_server(asker)]


def _asker(complaint: Complaint, tell: Callable[[str], None]) -> Asker | None:
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
    return Asker(base_url, complaint.timeout_s, complaint.question_timeout_s, api_key=key, tell=tell)


async def _machine(complaint: Complaint, hardware: Hardware) -> list[Finding]:
    runtime = complaint.runtime
    weights = port = None
    if runtime is not None and runtime.kind == "sglang":
        weights = _weights(runtime)
        site = runtime.launch.sites.get("server")
        port = site.port if site is not None and isinstance(site.port, int) else None
    found = []
    if runtime is not None and runtime.launch.command_prefix:
        prefix = " ".join(runtime.launch.command_prefix)
        found.append(ok("machine", f"this one; the runtime is started behind `{prefix}`: look there too"))
    other = _OTHER_DEVICES.get(runtime.hardware) if runtime is not None and runtime.hardware is not None else None
    return [
        *found,
        *([look_at_device(*other)] if other else look_at_gpus(hardware, needed=complaint.wants_sglang)),
        *look_at_limits(read_limits()),
        look_at_shared_memory(len(hardware.gpus)),
        *look_at_disk(complaint.results, weights),
        await look_at_ports(port),
    ]


def _weights(runtime: RuntimeConfig) -> Weights | None:
    """What has to be on disk; None where the weights are made at random."""
    if runtime.base.get("load_format") == "dummy":
        return None
    folder = local_folder(runtime.model)
    if folder is not None:
        return Weights(str(folder), None)
    known = find_model(runtime.model)
    return Weights(known.path if known else runtime.model, WEIGHTS_GIB.get(known.name) if known else None)


async def _installation(complaint: Complaint, hardware: Hardware) -> list[Finding]:
    if not complaint.wants_sglang:
        line = "not looked at: name its interpreter with --python, or a config of kind sglang"
        return [look_at_reference(), ok("sglang", line)]
    how = complaint.runtime.launch if complaint.runtime is not None else None
    if complaint.python is not None or how is None:
        return await look_at_sglang(Launch(python=complaint.python), hardware.cuda)
    launch = Launch(
        python=None if how.python is None else Path(how.python),
        env=how.env,
        command_prefix=how.command_prefix,
        container=how.container,
        sites=how.sites,
    )
    return await look_at_sglang(launch, hardware.cuda)

"""The sglang of an interpreter: is it there, do its kernels and torch fit it and the driver."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace

from dsabench.machine.checks import Finding, ok, problem, warning
from dsabench.runtimes.command import Launch
from dsabench.sglang.accepts import known_versions
from dsabench.sglang.images import wrap_sglang
from dsabench.sglang.installed import ask
from dsabench.sglang.versions import OLDEST, parse_version

_TIMEOUT_S = 120.0

DRIVERS = {"13": "580", "12": "525"}
"""Major version of CUDA → the oldest driver branch that serves it."""


async def check_sglang(launch: Launch, driver_cuda: str | None) -> list[Finding]:
    """Versions of sglang, its kernels and torch.

    Raises:
        InputError: the interpreter that was named cannot be run.

    """
    words, _ = wrap_sglang(
        (launch.interpreter, "-m", "pip", "install"), {}, replace(launch, env={}), host=launch.first_host
    )
    pip = shlex.join(words)
    facts = await asyncio.to_thread(ask, launch, "pins", timeout_s=_TIMEOUT_S)
    if facts["version"] is None:
        line = f"the interpreter has none (Python {facts['python']})"
        return [problem("sglang", line, f"{pip} sglang=={known_versions()[-1]}")]
    return [
        _version(facts["version"], facts["python"], pip),
        *(_pin(name, versions, pip) for name, versions in facts["pins"].items()),
        *_cuda(facts["packages"].get("torch-cuda"), driver_cuda),
    ]


def _version(sglang: str, python: str, pip: str) -> Finding:
    version, line = parse_version(sglang), f"{sglang} on Python {python}"
    if version < OLDEST:
        return problem("sglang", f"{line}; versions before {OLDEST} are not described", f"{pip} -U sglang")
    if version not in known_versions():
        near = max((known for known in known_versions() if known < version), default=OLDEST)
        return warning("sglang", f"{line}; this version was not read, the rules of {near} are taken for it")
    return ok("sglang", line)


def _pin(name: str, versions: dict[str, str | None], pip: str) -> Finding:
    wanted, installed = versions["wanted"], versions["installed"]
    if installed is not None and installed.partition("+")[0] == wanted:
        return ok(name, installed)
    line = f"{installed or 'not installed'}; this sglang asks for {wanted}"
    return problem(name, line, f"{pip} {name}=={wanted}")


def _cuda(torch_cuda: str | None, driver_cuda: str | None) -> list[Finding]:
    """Torch's CUDA must not be of a newer major version than the driver serves; minor ones are compatible."""
    if torch_cuda is None or driver_cuda is None:
        return []
    major = torch_cuda.partition(".")[0]
    if int(major) <= int(driver_cuda.partition(".")[0]):
        return [ok("cuda", f"torch is built for {torch_cuda}, the driver serves up to {driver_cuda}")]
    line = f"torch is built for CUDA {torch_cuda}, the driver serves only up to {driver_cuda}"
    branch = DRIVERS.get(major)
    return [problem("cuda", line, f"sudo apt-get install cuda-drivers-{branch}" if branch else None)]

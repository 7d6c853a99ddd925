"""Everything that a record says about where it was measured."""

from __future__ import annotations

import platform
from pathlib import Path

import dsabench
from dsabench.model.environment import Environment, RuntimeIdentity, fingerprint
from dsabench.probes.command import output_of
from dsabench.probes.hardware import collect_hardware

_PACKAGE = Path(dsabench.__file__).parent
_CODE = ("harness", "kernels", "pyproject.toml")
"""What makes a checkout dirty: results are written into it, and configs are in the records."""


async def collect_environment(runtime: RuntimeIdentity) -> Environment:
    """The machine as this process sees it now (so before it is pinned), and the runtime given."""
    hardware = await collect_hardware()
    return Environment(
        fingerprint=fingerprint(hardware, runtime),
        hardware=hardware,
        runtime=runtime,
        host=platform.node(),
        os=operating_system(),
        dsabench_version=dsabench.__version__,
        dsabench_commit=await commit_of(_PACKAGE.parent.parent),
    )


def operating_system() -> str:
    """`Ubuntu 24.04.1 LTS, Linux 6.8.0`."""
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


async def commit_of(checkout: Path) -> str | None:
    """Commit of dsabench's own checkout, `+dirty` where its code was changed; None elsewhere, or without git."""
    if not (checkout / "pyproject.toml").is_file() or not (checkout / ".git").exists():
        return None
    git = ("git", "--no-optional-locks", "-C", str(checkout))
    commit = await output_of(*git, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = await output_of(*git, "status", "--porcelain", "--", *_CODE)
    # Not knowing (git too slow) is not the same as clean.
    return commit.strip() + ("" if changes == "" else "+dirty")

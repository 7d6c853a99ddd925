"""What a record stores about the place of its measurement: CPU, memory, GPUs, system, commit."""

from __future__ import annotations

import asyncio
import os
import platform
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import dsabench
from dsabench.model.environment import Environment, Gpu, Hardware, RuntimeIdentity, fingerprint
from dsabench.model.value import digest


async def output_of(*argv: str, timeout_s: float = 10.0) -> str | None:
    """The stdout of a command; None if it is not installed, fails, or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            text, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return text.decode(errors="replace") if process.returncode == 0 else None


_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits")


async def collect_hardware() -> Hardware:
    """Collect the hardware. Call it before pinning: it counts the cores of this process."""
    return await _hardware(await _all_rows())


async def _hardware(all_rows: list[list[str]]) -> Hardware:
    rows = _visible(all_rows)
    return Hardware(
        cpu=cpu_name(_read(_CPUINFO)),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_mib=min([memory_mib(_read(_MEMINFO)), *memory_limits_mib(_read(_CGROUP), _CGROUPS)]),
        gpus=tuple(Gpu(name=name, memory_mib=int(memory), uuid=uuid) for _, uuid, name, memory, _ in rows),
        driver=rows[0][4] if rows else None,
        cuda=cuda_version(await output_of("nvidia-smi") or "") if rows else None,
    )


async def visible_gpus() -> tuple[str, ...]:
    """The numbers, in PCI order, of the GPUs that this process can use, as CUDA_VISIBLE_DEVICES takes them."""
    return tuple(row[0] for row in _visible(await _all_rows()))


def cpu_name(cpuinfo: str) -> str:
    """The model name. ARM's cpuinfo has only numbers of implementer and part."""
    if match := re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE):
        return match[1].strip()
    numbers = [re.search(rf"^CPU {key}\s*:\s*(\S+)$", cpuinfo, re.MULTILINE) for key in ("implementer", "part")]
    found = [number[1] for number in numbers if number]
    return " ".join([platform.machine(), *found])


def memory_mib(meminfo: str) -> int:
    """Installed memory, rounded to whole GiB because the kernel's own part differs from boot to boot."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return max(1, round(int(match[1]) / 2**20)) * 1024 if match else 0


def memory_limits_mib(cgroup: str, mounted: Path) -> list[int]:
    """What the control groups of this process (version 2) allow it, as of a container: its own and those around it, in whole GiB."""
    own = re.search(r"^0::/(.*)$", cgroup, re.MULTILINE)
    places = [] if own is None else [mounted / own[1], *(mounted / own[1]).parents]
    limits = [_read(place / "memory.max").strip() for place in places if place.is_relative_to(mounted)]
    return [max(1, int(limit) // 2**30) * 1024 for limit in limits if limit.isdigit()]


def cuda_version(table: str) -> str | None:
    """The newest CUDA version of the driver, from the head of nvidia-smi's table."""
    match = re.search(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)", table)
    return match and match[1]


async def _all_rows() -> list[list[str]]:
    return _rows(await output_of(*_QUERY) or "")


def _rows(table: str) -> list[list[str]]:
    """Lines of five cells. A GPU without memory of its own (`[N/A]`) counts as 0 MiB."""
    lines = [[cell.strip() for cell in line.split(",")] for line in table.splitlines()]
    return [[*row[:3], row[3] if row[3].isdigit() else "0", row[4]] for row in lines if len(row) == 5]


def _visible(rows: list[list[str]]) -> list[list[str]]:
    """Apply CUDA_VISIBLE_DEVICES: keep its order, and stop at the first unknown name, as CUDA does."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return rows
    chosen = []
    for name in filter(None, (part.strip() for part in setting.split(","))):
        row = _named(rows, name)
        if row is None:
            break
        chosen.append(row)
    return chosen


def _named(rows: Iterable[list[str]], name: str) -> list[str] | None:
    return next((row for row in rows if row[0] == name or (name.startswith("GPU-") and row[1].startswith(name))), None)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


_PACKAGE = Path(dsabench.__file__).parent
_CODE = ("harness", "kernels", "pyproject.toml")
"""Changes here make a checkout dirty. Results are written into it, and configs are stored in the records."""


async def collect_environment(runtime: RuntimeIdentity) -> Environment:
    """The machine as this process sees it now (call it before pinning), and the given runtime."""
    rows = await _all_rows()
    hardware = await _hardware(rows)
    return Environment(
        fingerprint=fingerprint(hardware, runtime),
        hardware=hardware,
        runtime=runtime,
        host=platform.node(),
        machine=machine_hash(row[1] for row in rows),
        os=operating_system(),
        dsabench_version=dsabench.__version__,
        dsabench_commit=await commit_of(_PACKAGE.parent.parent),
    )


_IDS = (Path("/etc/machine-id"), Path("/sys/class/dmi/id/product_uuid"))
"""The second is readable for root alone, and tells virtual machines of one image apart."""


def machine_hash(gpus: Iterable[str] = ()) -> str:
    """Twelve hex digits of the sha256 of the host's name and ids and its GPUs' uuids.

    All GPUs that the driver shows count, whatever CUDA_VISIBLE_DEVICES hides: rented virtual machines of one image have the same name and
    ids, and lanes of one machine see different GPUs of it.
    """
    return digest("\n".join([platform.node(), *(_read(file).strip() for file in _IDS), *sorted(gpus)]))[:12]


def operating_system() -> str:
    """`Ubuntu 24.04.1 LTS, Linux 6.8.0`."""
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


async def commit_of(checkout: Path) -> str | None:
    """The commit of dsabench's own checkout, with `+dirty` if its code was changed; None outside a checkout or without
    git.
    """
    if not (checkout / "pyproject.toml").is_file() or not (checkout / ".git").exists():
        return None
    git = ("git", "--no-optional-locks", "-C", str(checkout))
    commit = await output_of(*git, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = await output_of(*git, "status", "--porcelain", "--", *_CODE)
    # If git is too slow the state is unknown, and unknown must not look clean.
    return commit.strip() + ("" if changes == "" else "+dirty")

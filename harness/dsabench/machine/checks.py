"""Check this machine before a run: GPUs, limits, shared memory, disk."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsabench.errors import one_line
from dsabench.machine.model_files import hub_cache, in_hub_cache
from dsabench.model.environment import Hardware
from dsabench.model.value import Value

_LINE_CHARS = 300

Verdict = Literal["ok", "warning", "problem"]


class Finding(Value):
    """One check and its outcome. A problem keeps the runtime from working; a warning may."""

    check: str
    """What was checked: `gpu`, `driver`, `open files`, `tool calls`, …"""
    verdict: Verdict
    line: str
    fix: str | None = None
    """A command that repairs it, or words to add to one; None if nothing is wrong or no command helps."""


def ok(check: str, line: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, verdict="ok", line=one_line(line, _LINE_CHARS))


def warning(check: str, line: str, fix: str | None = None) -> Finding:
    """It works, but perhaps not for long or not at full speed."""
    return Finding(check=check, verdict="warning", line=one_line(line, _LINE_CHARS), fix=fix)


def problem(check: str, line: str, fix: str | None = None) -> Finding:
    """It does not work."""
    return Finding(check=check, verdict="problem", line=one_line(line, _LINE_CHARS), fix=fix)


OPEN_FILES = 65_536
"""The limit that sglang requests for itself. Each request in flight takes a socket on both sides."""
OPEN_FILES_LEAST = 2_048
SHARED_MEMORY_GIB = 1.0
"""NCCL and the scheduler's queues need shared memory. A container has 64 MiB by default."""
SPARE_GIB = 2.0
"""For records, logs and kernels that the first boot compiles."""

_GIB = 2**30
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (the place that is measured, not a place to write)


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """Soft and hard limits of this process; None is unlimited."""

    open_files: tuple[int | None, int | None]
    locked_bytes: tuple[int | None, int | None]


def read_limits() -> ShellLimits:
    """Read the limits that the shell has set."""
    return ShellLimits(_limit(resource.RLIMIT_NOFILE), _limit(resource.RLIMIT_MEMLOCK))


def _limit(which: int) -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(which)
    unlimited = resource.RLIM_INFINITY
    return (None if soft == unlimited else soft, None if hard == unlimited else hard)


def check_gpus(hardware: Hardware, *, needed: bool) -> list[Finding]:
    """Check GPUs and driver. No GPU is a problem only if the runtime needs one."""
    if not hardware.gpus:
        line = "nvidia-smi names no GPU that this process may use"
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
            return [problem("gpu", f"{line}: CUDA_VISIBLE_DEVICES hides them", "unset CUDA_VISIBLE_DEVICES")]
        if needed:
            return [problem("gpu", line, "nvidia-smi -L   # in a container: docker run --gpus all …")]
        return [warning("gpu", f"{line}; the reference runtime needs none", "nvidia-smi -L")]
    names = {gpu.name for gpu in hardware.gpus}
    gib = min(gpu.memory_mib for gpu in hardware.gpus) / 1024
    listed = f"{len(hardware.gpus)} × {', '.join(sorted(names))}, {gib:.0f} GiB each"
    same = "export CUDA_VISIBLE_DEVICES=0   # the numbers of those of one kind: nvidia-smi -L"
    found = [ok("gpu", listed) if len(names) == 1 else warning("gpu", f"different kinds: {listed}", same)]
    return [*found, ok("driver", f"{hardware.driver}, serves CUDA up to {hardware.cuda or 'unknown'}")]


def check_device(place: Path, command: str) -> Finding:
    """Check the driver of accelerators that nvidia-smi does not know."""
    if place.exists():
        return ok("gpu", f"{place} is there, so the driver is; {command.partition(' ')[0]} shows more")
    return problem("gpu", f"{place} is missing: no driver, or hidden from this process", command)


def check_limits(limits: ShellLimits) -> list[Finding]:
    """Check the limits of open files and locked memory."""
    return [_open_files(*limits.open_files), _locked(*limits.locked_bytes)]


def _open_files(soft: int | None, hard: int | None) -> Finding:
    if soft is None or soft >= OPEN_FILES:
        return ok("open files", f"{'unlimited' if soft is None else soft} (ulimit -n)")
    line = f"{soft} (ulimit -n); a load of many requests in flight takes up to {OPEN_FILES}"
    if hard is None or hard >= OPEN_FILES:
        fix = f"ulimit -n {OPEN_FILES}"
    else:
        fix = f"echo '* - nofile {OPEN_FILES}' | sudo tee /etc/security/limits.d/90-nofile.conf   # then log in again"
    return problem("open files", line, fix) if soft < OPEN_FILES_LEAST else warning("open files", line, fix)


def _locked(soft: int | None, hard: int | None) -> Finding:
    if soft is None:
        return ok("locked memory", "unlimited (ulimit -l)")
    line = f"{soft // 1024} KiB (ulimit -l); KV transfer over InfiniBand locks its buffers"
    if hard is None:
        return warning("locked memory", line, "ulimit -l unlimited")
    container = "docker run --ulimit memlock=-1 …"
    fix = f"echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-memlock.conf   # in a container: {container}"
    return warning("locked memory", line, fix)


def check_shared_memory(gpus: int, place: Path = _SHARED_MEMORY) -> Finding:
    """Check the size of /dev/shm. Several GPUs communicate through it."""
    try:
        gib = shutil.disk_usage(place).total / _GIB
    except OSError as error:
        return problem("shared memory", f"{place}: {error.strerror}", f"sudo mount -t tmpfs -o size=32g tmpfs {place}")
    if gib >= SHARED_MEMORY_GIB:
        return ok("shared memory", f"{gib:.1f} GiB ({place})")
    line = f"{gib * 1024:.0f} MiB ({place}); NCCL and the scheduler put their queues there"
    fix = f"sudo mount -o remount,size=32g {place}   # in a container: docker run --shm-size 32g …"
    return problem("shared memory", line, fix) if gpus > 1 else warning("shared memory", line, fix)


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A model that must be on the disk of this machine."""

    model: str
    """A folder, or the name of a repository."""
    gib: float | None
    """Least size; None if the model is unknown."""

    def is_here(self) -> bool:
        """Whether the folder, or a snapshot in the cache, exists."""
        return Path(self.model).is_dir() or bool(in_hub_cache(self.model, "config.json"))


def check_disk(results: Path, weights: ModelWeights | None) -> list[Finding]:
    """Check the free space for records, and for the model if it must still be downloaded."""
    found = [_space("disk", results, SPARE_GIB, "records and logs")]
    if weights is None:
        return found
    if weights.is_here():
        return [*found, ok("model", f"{weights.model} is on this machine")]
    if weights.gib is None:
        fix = f"ls {weights.model}/config.json"
        return [*found, warning("model", f"{weights.model} is neither a folder here nor a known model", fix)]
    return [*found, _space("model", hub_cache(), weights.gib, f"{weights.model}, which is not here yet")]


def _space(check: str, place: Path, needed_gib: float, what: str) -> Finding:
    there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free / _GIB
    line = f"{free:.0f} GiB free at {there}; {what}: {needed_gib:.0f} GiB"
    if free >= needed_gib:
        return ok(check, line)
    fix = f"export HF_HOME=/a/larger/disk   # or make room: du -xh -d1 {there} | sort -h | tail"
    return problem(check, line, fix if check == "model" else f"du -xh -d1 {there} | sort -h | tail")

"""Accelerators: those of `hardware.yaml` by name, any other by its architecture and memory (`sm_89-48gib`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dsabench.errors import InputError
from dsabench.model.tables import read_table

Platform = Literal["cuda", "rocm", "npu"]

_OTHER = re.compile(r"(?:sm_?(?P<cuda>\d{2,3})|gfx(?P<rocm>\d{2})[0-9a-f])[a-z]?-(?P<gib>\d{1,4})gi?b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device. `capability` is CUDA's compute capability, or what ROCm reports in its place."""

    name: str
    device_name: str | None
    """As the driver says it, up to trailing variants; None if only its architecture is known."""
    platform: Platform
    memory_gib: int
    capability: tuple[int, int] | None = None

    @property
    def sm_major(self) -> int | None:
        """9 is Hopper, 10 and 12 Blackwell; None where it is no CUDA device."""
        return self.capability[0] if self.platform == "cuda" and self.capability else None


def _read() -> dict[str, Accelerator]:
    table = read_table("hardware.yaml")
    return {
        name: Accelerator(
            name, **{**fields, "capability": tuple(fields["capability"]) if "capability" in fields else None}
        )
        for name, fields in table.items()
    }


HARDWARE = _read()
"""Name → accelerator."""


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name, or of an architecture and memory.

    Raises:
        InputError: neither; the line says how others are named.

    """
    found = HARDWARE.get(name.lower())
    if found is not None:
        return found
    other = _OTHER.fullmatch(name)
    if other is None:
        known = ", ".join(HARDWARE)
        raise InputError(
            f"{name}: unknown hardware (known: {known}; any other by architecture and memory: sm_89-48gib)"
        )
    digits = other["cuda"] or other["rocm"]
    platform: Platform = "cuda" if other["cuda"] else "rocm"
    return Accelerator(name.lower(), None, platform, int(other["gib"]), (int(digits[:-1]), int(digits[-1])))

"""Why a GPU's clocks are down: bits of nvmlClocksEventReasons (nvml.h)."""

from __future__ import annotations

POWER_CAP = 0x4
"""The power limit is reached: what a GPU does under load."""
SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
"""Those that spoil a time."""

"""Makes the reference runtime slower by `POWER_STUDY_SLOWDOWN` (0.05: throughput falls by 5 %); on its path in candidate boots alone.

After every forward pass the engine's thread spins for d / (1 - d) of the time that the pass took, together with what came since
the pass before: a server that is slower in everything it does between two passes too, not in its kernels only.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_ENGINE = "dsabench.reference.engine.engine"


def _slow_down(module: ModuleType, by: float) -> None:
    step = module.Engine.step
    last_end_s: dict[int, float] = {}

    def slowed(engine: Any) -> Any:
        began_s = last_end_s.get(id(engine), time.perf_counter())
        served = step(engine)
        if served is None:  # idle: what comes next starts its own time
            last_end_s.pop(id(engine), None)
            return None
        until_s = began_s + (time.perf_counter() - began_s) / (1 - by)
        while time.perf_counter() < until_s:
            pass
        last_end_s[id(engine)] = time.perf_counter()
        return served

    module.Engine.step = slowed  # type: ignore[attr-defined]


class _AfterImport:
    """Finds the engine's module as usual and changes it once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _ENGINE:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_slow_down(module: ModuleType) -> None:
            load(module)
            _slow_down(module, float(os.environ["POWER_STUDY_SLOWDOWN"]))

        spec.loader.exec_module = load_and_slow_down  # type: ignore[method-assign]
        return spec


if os.environ.get("POWER_STUDY_SLOWDOWN"):
    sys.meta_path.insert(0, _AfterImport())  # type: ignore[arg-type]

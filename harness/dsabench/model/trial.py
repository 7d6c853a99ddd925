"""One trial: a runtime spec and a workload, with an id that names exactly that."""

from __future__ import annotations

from typing import Literal

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import Value, canonical_json, digest
from dsabench.model.workload import Workload


class Trial(Value):
    """One load test of one setting. Self-contained: everything needed to run it again, but the place."""

    kind: Literal["serve"] = "serve"
    runtime: RuntimeSpec
    workload: Workload

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON, which is also the form in which a record holds the trial."""
        return digest(canonical_json(self))

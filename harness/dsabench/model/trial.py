"""One trial: a runtime spec and a workload or an eval, with an id that names exactly that."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsabench.model.evals import EvalTask
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


class EvalTrial(Value):
    """One eval of one setting."""

    kind: Literal["eval"] = "eval"
    runtime: RuntimeSpec
    workload: EvalTask

    @property
    def id(self) -> str:
        """As of `Trial`."""
        return digest(canonical_json(self))


AnyTrial = Annotated[Trial | EvalTrial, Field(discriminator="kind")]

"""When too many requests failed for the others to be a measurement. Imports no pydantic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsabench.errors import TrialFault
from dsabench.model.sample import RequestSample

if TYPE_CHECKING:  # a load test from the command line has no workload, and pydantic costs 100 ms
    from dsabench.model.record import FaultKind, Stage

FAILED_SHARE_MAX = 0.1
"""Beyond one failed request in ten the others are no sample of the load that was asked: the fastest survive. Nor are the
other answers of an eval a score: what failed is no random part of the questions."""

_FAULTS: dict[str, FaultKind] = {"timeout": "request_timeout", "connect": "unreachable", "garbage": "bad_response"}
"""Class of a request's error → kind of the fault; all others are `request_errors`."""


def too_many(failed: int, total: int, share_max: float = FAILED_SHARE_MAX) -> bool:
    """Whether the rest measures nothing."""
    return failed > share_max * total


def refuse_failures(samples: Sequence[RequestSample], *, stage: Stage, share_max: float) -> None:
    """Let few failures pass.

    Raises:
        TrialFault: more than `share_max` of the requests failed; carries the commonest error.

    """
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    if not too_many(errors.total(), len(samples), share_max):
        return
    [(commonest, _)] = errors.most_common(1)
    kind = _FAULTS.get(commonest.partition(":")[0], "request_errors")
    raise TrialFault(kind, f"{errors.total()} of {len(samples)} requests failed, most with {commonest}", stage=stage)

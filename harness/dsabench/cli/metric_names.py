"""Names of metrics as they are given on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from dsabench.errors import InputError, nearest
from dsabench.model.metrics import METRICS


def require_metrics(names: Iterable[str]) -> None:
    """Refuse a name that no metric has, with the nearest one.

    Raises:
        InputError: no such metric.

    """
    for name in names:
        if name not in METRICS:
            near = nearest(name, METRICS)
            raise InputError(f"{name}: no such metric" + (f"; did you mean {near}?" if near else _LISTED))


_LISTED = " (docs/metrics.md lists them)"

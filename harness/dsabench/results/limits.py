"""What limited the server under each workload, of two settings side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dsabench.model.bottleneck import Bottleneck
from dsabench.model.record import Record


class LimitsOfLoad(NamedTuple):
    """Under one workload. None: no log of the server was to be seen."""

    workload: str
    default: Bottleneck | None
    best: Bottleneck | None

    @property
    def words(self) -> str:
        """Such as `chat: default: KV cache: use is 97%, 41 requests were retracted; best: none: nothing waits, …`."""
        sides = (("default", self.default), ("best", self.best))
        return f"{self.workload}: {'; '.join(f'{name}: {side.words}' for name, side in sides if side is not None)}"


def limits_of_loads(
    workloads: Iterable[str], default: Sequence[Record], best: Sequence[Record]
) -> tuple[LimitsOfLoad, ...]:
    """Of the workloads under which at least one side has a limit; the records are those of each side."""
    found = (LimitsOfLoad(name, _commonest(default, name), _commonest(best, name)) for name in workloads)
    return tuple(one for one in found if any(side is not None and side.binds for side in (one.default, one.best)))


def _commonest(records: Iterable[Record], workload: str) -> Bottleneck | None:
    """The limit of most boots, as the last of them tells it."""
    of_load = (record.bottleneck for record in records if record.trial.workload.name == workload)
    told = [one for one in of_load if one is not None]
    limits = Counter(one.limit for one in told)
    return next((one for one in reversed(told) if one.limit == limits.most_common(1)[0][0]), None)

"""What a sweep that was begun still has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.search.budget import Purse
from dsabench.search.forecast import Forecast
from dsabench.search.loop import has_work
from dsabench.search.plan import Foreseen, challenger, rivals


@dataclass(frozen=True, slots=True)
class Rest:
    """Boots and trials that are not recorded yet, if nothing fails."""

    search_boots: int = 0
    search_trials: int = 0
    confirm_boots: int = 0
    confirm_trials: int = 0

    @property
    def boots(self) -> int:
        """Of search and confirmation."""
        return self.search_boots + self.confirm_boots

    @property
    def trials(self) -> int:
        """Of search and confirmation."""
        return self.search_trials + self.confirm_trials


def rest_of(purse: Purse, forecast: Forecast, ahead: Sequence[Foreseen]) -> Rest:
    """Derived from the ledger: nothing where the sweep would say that there is nothing to do."""
    if not has_work(purse.ledger, purse):
        return Rest()
    workloads = len(purse.ledger.config.workloads)
    boots = trials = 0
    if purse.stops_search() is None:
        bootable = [one for one in ahead if one.refusal is None]
        unforeseen = max(0, forecast.search_boots() - len(bootable))
        boots = sum(one.missing > 0 for one in bootable) + unforeseen
        trials = sum(one.missing for one in bootable) + unforeseen * workloads
        limit = purse.trials_left()
        trials = trials if limit is None else min(trials, limit)
    return Rest(boots, trials, *_confirmation(purse, forecast, searched=boots == 0))


def _confirmation(purse: Purse, forecast: Forecast, *, searched: bool) -> tuple[int, int]:
    """Its boots and trials: all of them as long as the search may find any setting the best.

    One that was begun goes on with the best setting of now, though the search may still find another.
    """
    ledger, wanted = purse.ledger, purse.budget.confirm_boots
    searched = searched or ledger.boots(purse.round, "confirm") > 0
    best = challenger(ledger, purse.round) if searched else None
    if best is None:
        boots = 0 if searched else forecast.confirm_boots()
        return boots, boots * len(ledger.config.workloads)
    specs = (ledger.config.default, *rivals(ledger, best.spec, purse.round), best.spec)
    sides = [ledger.of_setting(spec, "confirm", purse.round).values() for spec in specs]
    lacking = [[max(0, wanted - len(records)) for records in side] for side in sides]
    return sum(map(max, lacking)), sum(map(sum, lacking))

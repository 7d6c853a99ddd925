"""How far a sweep is and how long it will still take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dsabench.model.runtime import Refuse, refuse_nothing
from dsabench.search.budget import Costs, Purse, costs
from dsabench.search.refused import Survey, survey
from dsabench.search.space import base_assignment, count


@dataclass(frozen=True, slots=True)
class Forecast:
    """A view of the purse: it changes as the ledger grows."""

    purse: Purse
    settings: int
    """Settings that the search may boot, the default included and what the rules refuse left out."""
    refused: Survey = field(default_factory=Survey)

    def search_boots(self) -> int:
        """Boots of the search under the budget, if nothing fails."""
        budget, workloads = self.purse.budget, len(self.purse.ledger.config.workloads)
        boots = self.settings
        if budget.max_trials is not None:
            boots = min(boots, -(-budget.max_trials // workloads))
        if budget.max_boots is not None:
            boots = min(boots, max(0, budget.max_boots - self.confirm_boots()))
        return boots

    def confirm_boots(self) -> int:
        """Boots of the confirmation: none where there is nothing but the default."""
        return self.purse.confirm_boots if self.settings > 1 else 0

    def boots_done(self) -> int:
        """Boots used in this round."""
        return self.purse.ledger.boots(self.purse.round)

    def boots_planned(self) -> int:
        """Boots the round will have used at its end; at least those it has used."""
        return max(self.boots_done(), self.search_boots() + self.confirm_boots())

    def trials_planned(self) -> int:
        """Trials of search and confirmation."""
        workloads = len(self.purse.ledger.config.workloads)
        search = self.search_boots() * workloads
        if self.purse.budget.max_trials is not None:
            search = min(search, self.purse.budget.max_trials)
        return search + self.confirm_boots() * workloads

    def costs(self) -> Costs:
        """Seconds of a boot and of a trial."""
        return costs(self.purse.ledger)

    def left_s(self) -> float | None:
        """Seconds left at the measured pace; None before anything was measured."""
        cost = self.costs()
        if not cost.measured:
            return None
        turns = math.ceil((self.boots_planned() - self.boots_done()) / self.purse.lanes)
        return cost.of(turns, turns * len(self.purse.ledger.config.workloads))


def make_forecast(purse: Purse, refuse: Refuse = refuse_nothing) -> Forecast:
    """Count the space once; counting stops at a million. What a part of the rules' answers says is taken for all."""
    config = purse.ledger.config
    space, base = config.space, config.default.knobs
    outside = base_assignment(space, base) is None
    refused = survey(config, refuse)
    points = count(space, base)
    forbidden = refused.refused if refused.is_whole else round(points * refused.refused / max(refused.asked, 1))
    return Forecast(purse, points - forbidden + outside, refused)

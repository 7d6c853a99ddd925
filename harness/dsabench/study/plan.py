"""What a study still has to measure, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsabench.model.runtime import Refuse, RuleRefusal, RuntimeSpec, refuse_nothing
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.budget import CostEstimate, Purse, costs
from dsabench.study.next_boot import (
    alternatives,
    challenger,
    choose_finalist,
    confirm_boots_left,
    listed,
    next_confirm_boot,
    next_search_boot,
    observation_of,
    observations,
)
from dsabench.study.proposers import Observation, make_proposer
from dsabench.study.space import base_assignment, count
from dsabench.study.space_check import Survey, survey


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

    def costs(self) -> CostEstimate:
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


@dataclass(frozen=True, slots=True)
class WorkLeft:
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


def rest_of(purse: Purse, forecast: Forecast, ahead: Sequence[PlannedSetting]) -> WorkLeft:
    """Derived from the ledger: nothing where the sweep would say that there is nothing to do."""
    if not has_work(purse.ledger, purse):
        return WorkLeft()
    workloads = len(purse.ledger.config.workloads)
    boots = trials = 0
    if purse.stops_search() is None:
        bootable = [one for one in ahead if one.refusal is None]
        unforeseen = max(0, forecast.search_boots() - len(bootable))
        boots = sum(one.missing > 0 for one in bootable) + unforeseen
        trials = sum(one.missing for one in bootable) + unforeseen * workloads
        limit = purse.trials_left()
        trials = trials if limit is None else min(trials, limit)
    return WorkLeft(boots, trials, *_confirmation(purse, forecast, searched=boots == 0))


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
    specs = (ledger.config.default, *alternatives(ledger, best.spec, purse.round), best.spec)
    sides = [ledger.of_setting(spec, "confirm", purse.round).values() for spec in specs]
    lacking = [[max(0, wanted - len(records)) for records in side] for side in sides]
    return sum(map(max, lacking)), sum(map(sum, lacking))


def has_work(ledger: StudyRecords, purse: Purse) -> bool:
    """Whether anything is left to boot; a finished sweep need not wait for a core."""
    if purse.stops_search() is None:
        strategy = make_proposer(ledger.config)
        if next_search_boot(ledger, strategy, purse.round, purse.trials_left()) is not None:
            return True
    best = choose_finalist(ledger, purse.round)
    if best is None or purse.stops_confirmation() is not None:
        return False
    return next_confirm_boot(ledger, best.spec, purse.round) is not None


def why_idle(ledger: StudyRecords, purse: Purse) -> str | None:
    """Why a sweep without work has none; None where everything is measured."""
    best = choose_finalist(ledger, purse.round)
    if best is not None and confirm_boots_left(ledger, best.spec, purse.round, 0):
        return f"the confirmation was cut short: {purse.stops_confirmation()}"
    reason, left = purse.stops_search(), purse.trials_left()
    # With the time up as with none left, the search may have come to the end of its space before.
    if left != 0 and next_search_boot(ledger, make_proposer(ledger.config), purse.round, left) is None:
        return None
    return reason


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """A setting that the search will come to, and what the rules say to it."""

    label: str
    spec: RuntimeSpec
    refusal: RuleRefusal | None = None
    missing: int = 0
    """Workloads that are not measured yet."""


def foresee(ledger: StudyRecords, round_: int, boots: int, refuse: Refuse = refuse_nothing) -> list[PlannedSetting]:
    """The settings of the search as far as they are certain: measured ones, and what a proposer that does not learn
    will ask for. A learning proposer's next settings depend on results still to come. Refused ones take no boot.
    """
    config = ledger.config
    ahead = listed(config)
    specs = (config.default, *(one.spec for one in scored_settings(ledger, round_)), *ahead)
    found = {spec.id: spec for spec in specs}
    refusals = {spec.id: refuse(spec) for spec in found.values()}
    if config.proposer.kind != "tpe":
        strategy = make_proposer(config)
        known = observations(ledger, round_)
        if not known and (default := observation_of(ledger, config.default, None)) is not None:
            known = [default]
        seen_ahead = (observation_of(ledger, spec, None) for spec in ahead if ledger.missing(spec, "search", round_))
        known = [*known, *(one for one in seen_ahead if one is not None)]
        while _bootable(refusals) < boots and (assignment := strategy.ask(known)) is not None:
            spec = config.spec(assignment)
            found[spec.id], refusals[spec.id] = spec, refuse(spec)
            known = [*known, Observation(assignment, None)]
    shown = [
        PlannedSetting(describe(ledger, spec), spec, refusals[spec.id], len(ledger.missing(spec, "search", round_)))
        for spec in found.values()
    ]
    while _bootable({one.spec.id: one.refusal for one in shown}) > boots:
        shown.pop()
    return shown


def _bootable(refusals: Mapping[str, RuleRefusal | None]) -> int:
    return sum(refusal is None for refusal in refusals.values())

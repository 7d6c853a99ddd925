"""Replay a search on a landscape: what each strategy pays until it has a setting that is nearly the best."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dsabench.kernelbench.summary import median_ranks
from dsabench.model.space import base_assignment, is_legal, key_of
from dsabench.reporting.replay_plot import ReplayCurve
from dsabench.study.landscape import Landscape, LandscapeSetting
from dsabench.study.memory import Memory, relative
from dsabench.study.proposers import PROPOSERS, Observation, Proposer, SearchTask, proposer_for
from dsabench.study.proposers.expected import Worth, measured_values
from dsabench.study.proposers.proposer import REFUSED

REGRET_AT = 24
"""Settings after which the regret is told: what a night on a node allows."""
_POINTS = 200
_INTERVAL_LEAST = 6
"""Searches whose median has a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One search: its state after each setting that it measured, the default first."""

    seconds: tuple[float, ...]
    """What boots and trials took so far."""
    boots: tuple[int, ...]
    """Boots so far: settings that differ in reload-free axes alone can share one."""
    regrets: tuple[float, ...]
    """What the setting that looks best so far really loses against the best one; infinite before any is feasible."""
    failed: int
    """Boots that failed."""

    def boots_to(self, within: float) -> int | None:
        """Boots until the setting that looks best is within this share of the best one; None if never."""
        return next((boots for boots, regret in zip(self.boots, self.regrets, strict=True) if regret <= within), None)

    def seconds_to(self, within: float) -> float | None:
        """The same in seconds."""
        return next((spent for spent, regret in zip(self.seconds, self.regrets, strict=True) if regret <= within), None)

    def regret_at(self, seconds: float) -> float:
        """Regret of what was measured by then; all is lost before anything was."""
        measured = bisect.bisect_right(self.seconds, seconds)
        return min(self.regrets[measured - 1], 1.0) if measured else 1.0

    def regret_after(self, settings: int) -> float:
        """Regret after so many settings, or at the end of a shorter search."""
        return self.regrets[min(settings, len(self.regrets)) - 1]


def replay(
    landscape: Landscape,
    task: SearchTask,
    proposer: Proposer,
    *,
    within: float,
    most: int,
    worth: Worth = measured_values,
) -> Replay:
    """Search until the setting that looks best (by `worth`) is within `within` of the best one and `REGRET_AT` settings are measured,
    until `most` settings are measured, or until nothing is left.

    A setting is measured once, with the noise of the task's seed, so that every strategy sees the same measurement of it.
    """
    default = base_assignment(landscape.header.space, landscape.header.base)
    history: list[Observation] = []
    seconds, regrets, failed, spent = list[float](), list[float](), 0, 0.0
    boots: list[int] = []
    sign = landscape.header.sign
    ahead = iter([*([] if default is None else [default]), *task.space.enqueued])
    while len(regrets) < most:
        assignment = next((one for one in ahead if key_of(one) not in task.seen(history)), None) or proposer.ask(
            history
        )
        if assignment is None:
            break
        place = landscape.by_key.get(key_of(assignment))
        if place is None:
            history.append(Observation(assignment, None, fault=REFUSED))
            continue
        found, running = landscape.settings[place], task.running(history)
        goes_on = running is not None and task.boot_of(running) == task.boot_of(assignment)
        value = _measured(found, landscape.header.noise, task.seed, place)
        history.append(
            Observation(
                assignment, value, found.violation, fault=found.fault, seconds=found.seconds, boot_s=found.boot_s
            )
        )
        spent += found.trials_s if goes_on else found.seconds
        boots.append((boots[-1] if boots else 0) + (not goes_on))
        failed += value is None
        seconds.append(spent)
        worths = zip(history, worth(task, history), strict=True)
        feasible = [(sign * one, known) for known, one in worths if one is not None and not known.violation]
        best = max(feasible, key=lambda one: one[0], default=None)
        regrets.append(math.inf if best is None else landscape.regret(landscape.setting(best[1].assignment)))
        if regrets[-1] <= within and len(regrets) >= REGRET_AT:
            break
    return Replay(tuple(seconds), tuple(boots), tuple(regrets), failed)


def _measured(found: LandscapeSetting, noise: float, seed: int, place: int) -> float | None:
    if found.value is None:
        return None
    return found.value * math.exp(noise * random.Random(f"{seed}:{place}").gauss(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """What a strategy pays over all seeds."""

    proposer: str
    grid_seconds: float
    """What measuring every setting takes."""
    within: float
    replays: tuple[Replay, ...]

    @property
    def reached(self) -> int:
        """Seeds that came within the wanted share of the best setting."""
        return sum(one.boots_to(self.within) is not None for one in self.replays)

    def cost_fraction(self, share: float) -> float | None:
        """Quantile of the cost to get there, as a share of measuring everything. None where too few seeds got there."""
        told = self._quantile([one.seconds_to(self.within) for one in self.replays], share)
        return None if told is None else told / self.grid_seconds

    def boots(self, share: float) -> float | None:
        """Quantile of the boots that it takes to get there."""
        return self._quantile([one.boots_to(self.within) for one in self.replays], share)

    @property
    def regret(self) -> float | None:
        """Median regret after `REGRET_AT` settings; None where half of the searches have no feasible setting by then."""
        return self._quantile([one.regret_after(REGRET_AT) for one in self.replays], 0.5)

    @property
    def failed(self) -> float:
        """Mean number of failed boots."""
        return sum(one.failed for one in self.replays) / len(self.replays)

    @property
    def regret_interval(self) -> tuple[float, float] | None:
        """95 % interval of that median; None where too few searches, or searches without a feasible setting, leave none."""
        ordered = sorted(one.regret_after(REGRET_AT) for one in self.replays)
        if len(ordered) < _INTERVAL_LEAST:
            return None
        low, high = median_ranks(len(ordered))
        return None if math.isinf(ordered[high]) else (ordered[low], ordered[high])

    def curve(self) -> ReplayCurve:
        """The regret over the cost, from the first measurement of half of the searches to the end of the shortest one."""
        ends = min(one.seconds[-1] for one in self.replays)
        starts = float(np.median([one.seconds[0] for one in self.replays]))
        times = np.linspace(starts, max(ends, starts), _POINTS)
        found = np.array([[one.regret_at(moment) for one in self.replays] for moment in times])
        low, median, high = np.quantile(found, [0.25, 0.5, 0.75], axis=1, method="higher")
        return ReplayCurve(self.proposer, list(times / 3600), list(low), list(median), list(high))

    @staticmethod
    def _quantile(values: Iterable[float | None], share: float) -> float | None:
        found = sorted(math.inf if value is None else value for value in values)
        # The nearest rank from above: no mean with a search that never got there.
        told = found[max(math.ceil(share * len(found)) - 1, 0)]
        return None if math.isinf(told) else told


def memory_of(earlier: Landscape, landscape: Landscape, winners: int = 1) -> Memory:
    """What a study on a landscape knows after one on another."""
    space, base, sign = landscape.header.space, landscape.header.base, landscape.header.sign
    known = [one for one in earlier.settings if one.value is not None and is_legal(space, base, one.setting)]
    known.sort(key=lambda one: (one.is_feasible, sign * (one.value or 0.0)), reverse=True)
    best = tuple(one.setting for one in known if one.is_feasible)[:winners]
    return Memory(best, tuple(relative([(one.setting, one.value) for one in known if one.value is not None])))


def summarise(
    landscape: Landscape, name: str, *, seeds: int, within: float, most: int, memory: Memory | None = None
) -> ReplaySummary:
    """Replay one strategy with every seed."""
    replays = tuple(search(landscape, name, seed, within=within, most=most, memory=memory) for seed in range(seeds))
    return ReplaySummary(name, landscape.seconds, within, replays)


def search(
    landscape: Landscape, name: str, seed: int, *, within: float, most: int, memory: Memory | None = None
) -> Replay:
    """Replay one strategy with one seed."""
    header = landscape.header
    space = header.space if memory is None else memory.into(header.space)
    free, settings = frozenset(header.reload_free), max(most, REGRET_AT)
    task = SearchTask(space, header.base, seed, header.direction, settings, free)
    strategy = PROPOSERS[name]
    return replay(landscape, task, proposer_for(name, task), within=within, most=most, worth=strategy.worth)

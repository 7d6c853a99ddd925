"""One study as the site shows it: its settings, the best against the default, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.evals.gate import refused_settings
from dsabench.model.environment import Environment
from dsabench.model.metrics import METRICS
from dsabench.model.record import Phase, Record
from dsabench.model.runtime import SIMULATED, RuntimeSpec
from dsabench.model.study import Objective
from dsabench.model.study_result import Ablation, AccuracyRefusal, ObjectiveScore
from dsabench.model.verdict import Verdict
from dsabench.model.workload import Workload
from dsabench.reporting.comparison import ComparedSide, compare_sides
from dsabench.reporting.site.entry import Entry, label_of, machine_of
from dsabench.results.ablation import changes_of, has_gain, judge_ablation, number_of_changes, tied_with_first
from dsabench.results.limits import LimitsOfLoad, limits_of_loads
from dsabench.results.scores import (
    LookVerdicts,
    WorstRegret,
    against_default,
    compare_settings,
    judge_confirmed,
    judged_metrics,
    machine_levels,
    outdoes,
    rank_key,
    score_setting,
    unproven,
    worst_regrets,
)
from dsabench.results.study_records import assignment_of, measured_default, settle
from dsabench.runtimes.command import Launch
from dsabench.runtimes.kinds import runtime_of
from dsabench.stats.intervals import BootMean, mean_over_boots

GUARDS = (
    *("output_throughput_tok_s", "ttft_ms.p50", "ttft_ms.p90", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p90"),
    *("itl_ms.p50", "itl_ms.p99", "accept_length.mean"),
)
"""Compared beside it, as a family of their own."""


def reach(verdicts: Iterable[Verdict], most: float) -> float:
    """Half the width of a picture of their intervals: the farthest bound, cut at `most`."""
    bounds = [abs(edge) for v in verdicts for edge in (v.ci_low, v.ci_high, v.effect) if edge is not None]
    return min(max([*bounds, 0.02]), most)


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of a setting under a workload: over boots where there are several, else of its one record."""

    value: float
    boots: int
    low: float | None
    high: float | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """One runtime spec and all that was measured of it."""

    spec: RuntimeSpec
    label: str
    entries: tuple[Entry, ...]
    _figures: dict[tuple[str, str], Figure | None] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out: many places show the same figure."""

    def of(self, workload: str) -> list[Entry]:
        """Those of a workload's name that were measured; the confirmation's alone where it has several boots."""
        measured = [e for e in self.entries if e.result is not None and e.workload.name == workload]
        confirmed = [e for e in measured if e.record.phase == "confirm"]
        return confirmed if len({e.record.boot for e in confirmed}) > 1 else measured

    def confirming(self, workload: str) -> tuple[Record, ...]:
        """Records of the confirmation under a workload, those that failed too: each had its turn."""
        found = (entry.record for entry in self.entries if entry.workload.name == workload)
        return tuple(record for record in found if record.phase == "confirm")

    def boots(self, phase: Phase) -> list[str]:
        """Server processes of a phase, in order of time."""
        records = sorted((entry.record for entry in self.entries), key=lambda record: record.started_at)
        return list(dict.fromkeys(record.boot for record in records if record.phase == phase))

    def figure(self, workload: str, metric: str) -> Figure | None:
        """The metric; None where no record has it."""
        if (workload, metric) not in self._figures:
            self._figures[workload, metric] = self._figure(workload, metric)
        return self._figures[workload, metric]

    def _figure(self, workload: str, metric: str) -> Figure | None:
        having = [(entry, value) for entry in self.of(workload) if (value := entry.value(metric)) is not None]
        boots: dict[str, list[float]] = {}
        for entry, value in having:
            boots.setdefault(entry.record.boot, []).append(value)
        if not having:
            return None
        entries = tuple(entry for entry, _ in having)
        if len(boots) == 1:
            values = next(iter(boots.values()))
            return Figure(math.fsum(values) / len(values), 1, None, None, entries)
        found = mean_over_boots(boots)
        assert found is not None
        low, high = found.interval or (None, None)
        return Figure(found.mean, found.boots, low, high, entries)

    def search_rounds(self) -> list[int]:
        """Rounds of the search that tried it, in order."""
        return sorted({entry.record.round for entry in self.entries if entry.record.phase == "search"})

    def searched(self, workload: str, round_: int) -> list[Entry]:
        """Those of one round of the search under a workload, in order of time."""
        return _searched(self.entries, workload, round_)


def _searched(entries: Iterable[Entry], workload: str, round_: int) -> list[Entry]:
    found = (entry for entry in entries if entry.record.phase == "search" and entry.record.round == round_)
    return sorted((e for e in found if e.workload.name == workload), key=lambda e: e.record.started_at)


@dataclass(frozen=True, slots=True)
class Family:
    """The best setting against another one: verdicts that are corrected together."""

    base: Setting
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class Study:
    """Load tests of one study in one environment."""

    name: str
    slug: str
    entries: tuple[Entry, ...]
    config: StudyConfig | None
    metric: str
    arm: str = ""
    """Folder of its journal where other folders hold the same trials, measured apart: before and after a patch, say."""
    against: Study | None = None
    """The arm with the least installed, of those the first measured, where this is another."""
    answers: tuple[Entry, ...] = ()
    """The evals of the gate that its settings answered."""

    @property
    def title(self) -> str:
        """Name, and arm where there are several."""
        return f"{self.name}, {self.arm}" if self.arm else self.name

    def with_folder(self) -> Study:
        """The same study with its folder in the title, for a site where another study has the same title."""
        folder = self.entries[0].journal.parent
        within = folder.parent.name if self.arm else folder.name
        return replace(self, arm="/".join(word for word in (within, self.arm) if word))

    @cached_property
    def is_simulated(self) -> bool:
        """Whether its answer rests on simulated values: those of the best setting, or of the default alone."""
        answer = self.best or self.default_setting
        return any(SIMULATED in entry.record.labels for entry in answer.entries)

    @property
    def page(self) -> str:
        """Relative to the site's folder."""
        return f"studies/{self.slug}.html"

    @cached_property
    def environment(self) -> Environment:
        """The latest record's."""
        return max(self.entries, key=lambda entry: entry.record.started_at).record.environment

    @property
    def machine(self) -> str:
        """Accelerators, or the CPU."""
        return machine_of(self.environment)

    @cached_property
    def default(self) -> RuntimeSpec:
        """The config's, where it was measured; else the first setting that was tried, which a sweep's default is.

        A tune may pin a knob of all settings that the config does not name (HiSparse: the size of the device pool).
        """
        specs = tuple(self.specs.values())
        named = None if self.config is None else measured_default(self.config, specs)
        return named or specs[0]

    @cached_property
    def silent(self) -> frozenset[str]:
        """Knobs that say nothing that another one does not: present only with the same value."""
        values: dict[str, set[object]] = {}
        for spec in self.specs.values():
            for name, value in spec.knobs.items():
                values.setdefault(name, set()).add(value)
        return frozenset(
            name for name, of_name in values.items() if len(of_name) == 1 and name not in self.default.knobs
        )

    @cached_property
    def specs(self) -> dict[str, RuntimeSpec]:
        """Id → spec, in the order tried."""
        return {entry.spec.id: entry.spec for entry in self.entries}

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Best first; what has no number last."""
        grouped: dict[str, list[Entry]] = {}
        for entry in self.entries:
            grouped.setdefault(entry.spec.id, []).append(entry)
        made = [
            Setting(self.specs[id_], label_of(self.specs[id_], self.default, self.silent), tuple(of_spec))
            for id_, of_spec in grouped.items()
        ]
        return tuple(sorted(made, key=lambda one: rank_key(self._ranking, self.score(one)), reverse=True))

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """Name → the latest workload of that name."""
        return {entry.workload.name: entry.workload for entry in self.entries}

    @property
    def _ranking(self) -> Objective:
        direction = METRICS[self.metric].direction
        assert direction is not None, "settings are ranked by a metric with a better side"
        return self.objective or Objective(metric=self.metric, direction=direction)

    @cached_property
    def scores(self) -> dict[str, dict[str, Entry]]:
        """Eval of the gate → id of a setting → its latest score, in the order of time."""
        found: dict[str, dict[str, Entry]] = {}
        for entry in sorted(self.answers, key=lambda one: one.record.started_at):
            if "score" in entry.metrics:
                found.setdefault(entry.record.trial.workload.name, {})[entry.spec.id] = entry
        return found

    @cached_property
    def refusals(self) -> dict[str, AccuracyRefusal]:
        """Id of a setting → why the gate refuses it; none where the answers are not kept."""
        found: dict[str, AccuracyRefusal] = {}
        gates = () if self.config is None else self.config.gates
        for journal in {entry.journal for entry in self.answers}:
            records = [entry.record for entry in self.answers if entry.journal == journal]
            with suppress(InputError):
                found |= refused_settings(gates, journal.parent, records, self.default)
        return found

    def score(self, setting: Setting, round_: int | None = None) -> ObjectiveScore:
        """As the study itself scores what its search tried, of the latest round; of boots without a search, their mean."""
        refusal = self.refusals.get(setting.spec.id)
        if refusal is None and self.config is not None:
            refusal = unproven(self.config, setting.spec)
        return self._score(setting, round_).refused(refusal)

    def _score(self, setting: Setting, round_: int | None) -> ObjectiveScore:
        rounds = setting.search_rounds()
        if rounds:
            of_round = rounds[-1] if round_ is None else round_
            of_default = [entry for entry in self.entries if entry.spec.id == self.default.id]
            levels = machine_levels(self.metric, self._tried(of_default, of_round).values())
            return score_setting(self._ranking, self._tried(setting.entries, of_round), levels)
        values = [figure.value for load in self.workloads if (figure := setting.figure(load, self.metric)) is not None]
        if len(values) < len(self.workloads) or min(values) <= 0:
            return ObjectiveScore(None, 0.0)
        return ObjectiveScore(math.exp(math.fsum(map(math.log, values)) / len(values)), 0.0)

    def _tried(self, entries: Sequence[Entry], round_: int) -> dict[str, list[Record]]:
        """Workload → the records of a round of the search that count, of one setting's."""
        tried = {load: [one.record for one in _searched(entries, load, round_)] for load in self.workloads}
        return {load: list(settle(records)) for load, records in tried.items()}

    def against_default(self, setting: Setting) -> float | None:
        """Its score against the default's of the same round, as the terminal says it; None where there is none."""
        rounds, of_default = setting.search_rounds(), self.default_setting.search_rounds()
        if setting is self.default_setting or bool(rounds) != bool(of_default):
            return None
        latest = rounds[-1] if rounds else None
        return against_default(self.score(setting), self.score(self.default_setting, latest))

    @cached_property
    def regrets(self) -> dict[str, WorstRegret]:
        """Feasible setting's id → what it loses where it loses most against the best of a workload; of several workloads."""
        if len(self.workloads) < 2:
            return {}
        feasible = [one for one in self.settings if self.score(one).is_feasible]
        shown = {one.spec.id: {load: self.shown(one, load) for load in self.workloads} for one in feasible}
        values = {
            id_: {load: figure.value for load, figure in of_setting.items() if figure is not None and figure.value > 0}
            for id_, of_setting in shown.items()
        }
        return worst_regrets(self._ranking.direction, values)

    def shown(self, setting: Setting, workload: str) -> Figure | None:
        """The figure that its score rests on."""
        rounds = setting.search_rounds()
        if not rounds:
            return setting.figure(workload, self.metric)
        found = [(one, one.value(self.metric)) for one in setting.searched(workload, rounds[-1])]
        return next((Figure(value, 1, None, None, (one,)) for one, value in found if value is not None), None)

    @cached_property
    def default_setting(self) -> Setting:
        """The default's."""
        return self.setting_of(self.default)

    @cached_property
    def best(self) -> Setting | None:
        """The confirmed challenger; else the best of the search other than the default, of a tie the one nearest to it; None where
        there is none.
        """
        others = [setting for setting in self.settings if setting.spec.id != self.default.id]
        confirmed = [setting for setting in others if setting.boots("confirm")]
        if confirmed and self.config is not None and self.config.budget.others_confirmed is not None:
            # Others were confirmed to be held against it; a second one may take its place.
            boots = [{load: one.confirming(load) for load in self.workloads} for one in confirmed[:2]]
            is_second = (
                self.config.budget.confirm_second and len(boots) > 1 and outdoes(self.config, boots[1], boots[0])
            )
            return confirmed[1] if is_second else confirmed[0]
        if any(one.boots("ablate") for one in confirmed):
            # The last one is what remained of the winner, if it is better than the default itself.
            latest = sorted(
                confirmed, key=lambda one: max(entry.record.started_at for entry in one.entries), reverse=True
            )
            gains = (
                one
                for one in latest
                if has_gain(self._ranking, self._judge_confirmed(self._judged, self.default_setting, one))
            )
            return next(gains, latest[0])
        if confirmed:
            return max(confirmed, key=lambda one: max(entry.record.started_at for entry in one.entries))
        feasible = [one for one in others if self.score(one).is_feasible]
        tied, config = tied_with_first(feasible, lambda one: self.score(one).value), self.config
        return min(tied, key=lambda one: 0 if config is None else number_of_changes(config, one.spec), default=None)

    @cached_property
    def ablation(self) -> Ablation | None:
        """What each change of the winner gives; None where it was not booted without them."""
        config, ablated = self.config, [one for one in self.settings if one.boots("ablate")]
        # A config of that name need not be the one that was measured.
        if config is None or not ablated or any(assignment_of(config, one.spec) is None for one in ablated):
            return None
        ids = {one.spec.id for one in ablated}
        winner = max(ablated, key=lambda one: sum(c.without.id in ids for c in changes_of(config, one.spec))).spec
        latest = max(entry.record.round for one in ablated for entry in one.entries if entry.record.phase == "ablate")

        def records_of(spec: RuntimeSpec) -> dict[str, list[Record]]:
            entries = self.setting_of(spec).entries if spec.id in ids else ()
            found = [one.record for one in entries if (one.record.phase, one.record.round) == ("ablate", latest)]
            return {load: list(settle([r for r in found if r.trial.workload.name == load])) for load in self.workloads}

        found = judge_ablation(config, winner, records_of)
        is_best = self.best is not None and self.best.spec == found.reduced
        return (
            found
            if found.reduced is None or is_best
            else replace(found, not_adopted="its own confirmation does not show it")
        )

    def ablated(self, spec: RuntimeSpec) -> Setting:
        """A setting as the ablation alone saw it."""
        whole = self.setting_of(spec)
        return Setting(spec, whole.label, tuple(one for one in whole.entries if one.record.phase == "ablate"))

    def setting_of(self, spec: RuntimeSpec) -> Setting:
        """The setting of a spec that was measured."""
        return next(one for one in self.settings if one.spec.id == spec.id)

    @cached_property
    def rivals(self) -> tuple[Family, ...]:
        """What was confirmed to be held against the best beside the default, and how the best stands against each."""
        return tuple(Family(one, self._compare(self._judged, one)) for one in self._confirmed_too)

    @cached_property
    def _confirmed_too(self) -> tuple[Setting, ...]:
        if self.config is None or self.config.budget.others_confirmed is None or not self.is_confirmed:
            return ()
        apart = {self.default.id, None if self.best is None else self.best.spec.id}
        return tuple(one for one in self.settings if one.spec.id not in apart and one.boots("confirm"))

    @cached_property
    def lacking(self) -> int:
        """Boots that the confirmation lacks of those that the config asks for."""
        if self.config is None or self.best is None or not self.is_confirmed:
            return 0
        if self.stopped_early:
            return 0
        sides = (self.default_setting, self.best, *self._confirmed_too)
        rounds = max(entry.record.round for entry in self.entries) + 1
        return sum(max(0, rounds * self.config.budget.confirm_boots - len(one.boots("confirm"))) for one in sides)

    @cached_property
    def is_confirmed(self) -> bool:
        """Whether best and default were booted for the comparison, apart from the search."""
        return self.best is not None and bool(self.best.boots("confirm"))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Best against default in the objective and its constraints."""
        return self._compare(self._judged, self.default_setting)

    @property
    def _judged(self) -> tuple[str, ...]:
        return (self.metric,) if self.objective is None else judged_metrics(self.objective)

    @cached_property
    def limits(self) -> tuple[LimitsOfLoad, ...]:
        """What limited the server, of the default and the best."""
        if self.best is None:
            return ()
        default, best = ([entry.record for entry in one.entries] for one in (self.default_setting, self.best))
        return limits_of_loads(self.workloads, default, best)

    @cached_property
    def guards(self) -> tuple[Verdict, ...]:
        """The same in what nobody optimised."""
        judged = {verdict.metric for verdict in self.verdicts}
        return self._compare(tuple(metric for metric in GUARDS if metric not in judged), self.default_setting)

    @property
    def objective(self) -> Objective | None:
        """The config's, where the shown metric is its own."""
        if self.config is None or self.config.objective.metric != self.metric:
            return None
        return self.config.objective

    @cached_property
    def arm_verdicts(self) -> tuple[Verdict, ...]:
        """This arm's trials against the first one's, in the objective."""
        if self.against is None:
            return ()
        sides = [ComparedSide(study.arm, tuple(e.record for e in study.entries)) for study in (self.against, self)]
        try:
            return compare_sides(sides[0], sides[1], (self.metric,), across=True)
        except InputError:
            return ()

    @cached_property
    def headline_verdicts(self) -> tuple[Verdict, ...]:
        """What the opening page says: best against default where that was confirmed, else this arm against the first."""
        return self.verdicts if self.is_confirmed else self.arm_verdicts

    @cached_property
    def standing(self) -> int:
        """2 where something was compared with several boots a side, 1 where something leads, 0 where nothing was held
        against it. Of arms with a boot each there is an effect, and nothing to tell it from chance.
        """
        if any(verdict.ci_low is not None for verdict in self.headline_verdicts):
            return 2
        return int(bool(self.headline_verdicts) or len(self.settings) > 1)

    def measured_by(self, trial: str | None) -> Setting:
        """The setting of a trial, as a verdict names it; the default where the sides share no trial."""
        of_trial = (one for one in self.settings if any(entry.record.id == trial for entry in one.entries))
        return next(of_trial, self.default_setting)

    def _compare(self, metrics: Sequence[str], base: Setting) -> tuple[Verdict, ...]:
        if self.best is None or not metrics:
            return ()
        if self.is_confirmed:
            return self._judge_confirmed(metrics, base, self.best)
        sides = [
            ComparedSide(name, tuple(entry.record for entry in setting.entries))
            for name, setting in (("default", base), ("best", self.best))
        ]
        try:
            return compare_sides(sides[0], sides[1], metrics, across=True)
        except InputError:  # no workload that both have, or none of the metrics
            return ()

    def _judge_confirmed(self, metrics: Sequence[str], *settings: Setting) -> tuple[Verdict, ...]:
        """As the study itself judges, in what both settings have."""
        found = self._confirmed(metrics, *settings).verdicts
        return tuple(v for v in found if all(setting.figure(v.workload, v.metric) for setting in settings))

    def _confirmed(self, metrics: Sequence[str], *settings: Setting) -> LookVerdicts:
        base, candidate = ({load: one.confirming(load) for load in self.workloads} for one in settings)
        if self.config is None:
            return LookVerdicts(compare_settings(self.workloads, metrics, base, candidate))
        return judge_confirmed(self.config, base, candidate, metrics)

    @cached_property
    def reach(self) -> float:
        """Of its pictures."""
        return reach((*self.verdicts, *self.guards, *self.arm_verdicts), 1.5)

    @cached_property
    def stopped_early(self) -> str:
        """How the confirmation ended before all its boots; empty where it did not."""
        if self.best is None or not self.is_confirmed:
            return ""
        return self._confirmed(self._judged, self.default_setting, self.best).stopped

    @cached_property
    def gpus(self) -> Mapping[str, int]:
        """Setting → accelerators it takes; 1 where there are none: figures are then per machine."""
        has = bool(self.environment.hardware.gpus)
        return {
            id_: max(runtime_of(spec.kind, Launch()).gpus(spec), 1) if has else 1 for id_, spec in self.specs.items()
        }

    @cached_property
    def boots(self) -> int:
        """Server processes behind it; a refused setting had none."""
        return len({entry.record.boot for entry in self.entries if not entry.record.is_refusal})

    @property
    def is_ungated(self) -> bool:
        """Whether a setting leads of which nobody asked if it answers as well as the default."""
        return self.config is not None and not self.config.gates and self.best is not None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What every reader must know."""
        return tuple(sorted({label for entry in self.entries for label in entry.record.labels}))


def repeats_by_metric(entries: Sequence[Entry]) -> dict[str, BootMean]:
    """Metric → its mean over the boots of one trial; empty where there is one boot."""
    boots: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        for name, metric in entry.metrics.items():
            boots.setdefault(name, {}).setdefault(entry.record.boot, []).append(metric.value)
    found = {name: mean_over_boots(values) for name, values in boots.items() if len(values) > 1}
    return {name: one for name, one in found.items() if one is not None}

"""The opening page: one sentence per study, what it rests on, and under which conditions it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.config.runtime_kinds import has_random_weights
from dsabench.model.metrics import METRICS
from dsabench.model.runtime import RANDOM_WEIGHTS, SIMULATED
from dsabench.model.verdict import Verdict, VerdictWord
from dsabench.reporting.numbers import show_count, show_percent
from dsabench.reporting.site.study import Study, reach
from dsabench.sglang.model_config import read_config

_WORDS: tuple[VerdictWord, ...] = ("better", "worse", "no difference", "differs", "inconclusive")
_WIDEST = 0.25
"""The scale of a group of intervals ends there: most gains are small, and a wider one would show none of them."""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One study: what was compared, what came out, and the conditions."""

    study: Study
    subject: str
    """What is held against what, in the words of the setting or of the folder."""
    against: str
    finding: str
    verdicts: tuple[Verdict, ...]
    """Those of the objective; empty where nothing was compared."""
    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyGroup:
    """Studies that know equally much, on one scale."""

    title: str
    words: str
    rows: tuple[StudyRow, ...]

    @property
    def scale(self) -> float:
        """Relative difference at the edges of its pictures."""
        return reach((verdict for row in self.rows for verdict in row.verdicts), _WIDEST)


def group_studies(studies: Sequence[Study]) -> list[StudyGroup]:
    """Measured before simulated, decided before undecided, what was compared before what was only measured."""
    rows = list(map(_row, studies))
    decided = sorted((row for row in rows if row.study.standing == 2), key=_is_open)
    groups = [
        StudyGroup(
            "Compared",
            "Both sides were booted several times, in turns where the study says so.",
            tuple(row for row in decided if not row.study.is_simulated),
        ),
        StudyGroup(
            "Compared, with simulated values",
            "Speeds hang on something that was pinned, such as an accept length: they show what the setting costs, not what "
            "real weights would give.",
            tuple(row for row in decided if row.study.is_simulated),
        ),
        StudyGroup(
            "Not decided",
            "One boot a side, or a search whose winner nobody confirmed: leads, not results.",
            tuple(row for row in rows if row.study.standing == 1),
        ),
        StudyGroup(
            "Measured alone", "Nothing to hold it against.", tuple(row for row in rows if row.study.standing == 0)
        ),
    ]
    return [group for group in groups if group.rows]


def _is_open(row: StudyRow) -> bool:
    return all(verdict.verdict == "inconclusive" for verdict in row.verdicts)


def _row(study: Study) -> StudyRow:
    verdicts = tuple(v for v in study.headline_verdicts if v.metric == study.metric)
    conditions = tuple(_conditions(study))
    meaning = METRICS[study.metric].meaning
    if verdicts:
        ended = f"; {study.stopped_early}" if study.stopped_early else ""
        finding = f"{meaning}: {_finding(verdicts)}{ended}"
        if study.is_confirmed and study.best is not None:
            return StudyRow(study, study.best.label, "the default", finding, verdicts, conditions)
        assert study.against is not None, "else there is nothing that it was held against"
        return StudyRow(study, study.arm, study.against.arm, finding, verdicts, conditions)
    if len(study.settings) > 1:
        leader, finding = _lead(study)
        return StudyRow(study, leader, "the default" if leader else "", f"{meaning}: {finding}", (), conditions)
    loads = show_count(len(study.workloads), "workload")
    return StudyRow(study, "", "", f"{loads}, {show_count(study.boots, 'boot')}", (), conditions)


def _lead(study: Study) -> tuple[str, str]:
    """(the setting that leads a search, empty where the default does; what may be said of it)."""
    searched, leader = show_count(len(study.settings), "setting"), study.settings[0]
    if study.score(leader).value is None:
        return "", f"no number from {searched}"
    if leader is study.default_setting:
        return "", f"the default leads the search of {searched}, one boot each"
    default, change = study.score(study.default_setting), study.against_default(leader)
    beside = "" if default.is_feasible or default.why_not is None else f"; the default fails: {default.why_not}"
    much = "" if change is None else f", {show_percent(change)}"
    return leader.label, f"leads the search of {searched}{much} in one boot each, not confirmed{beside}"


def _finding(verdicts: Sequence[Verdict]) -> str:
    """`better in 3 of 5 workloads (+10.3 % to +11.9 %), inconclusive in 2 of 5 workloads (-2.4 % to -1.7 %); 9 boots a side`."""
    parts = []
    for word in _WORDS:
        of_word = [v for v in verdicts if v.verdict == word]
        effects = sorted(v.effect for v in of_word if v.effect is not None)
        if not of_word:
            continue
        where = f" in {len(of_word)} of {show_count(len(verdicts), 'workload')}" if len(verdicts) > 1 else ""
        ends = dict.fromkeys(show_percent(effect, of_word[0].unit) for effect in (effects[:1] + effects[-1:]))
        parts.append(f"{word}{where}" + (f" ({' to '.join(ends)})" if ends else ""))
    boots = [min(v.n_base, v.n_candidate) for v in verdicts]
    return f"{', '.join(parts)}; {_span(boots)} {'boot' if max(boots) == 1 else 'boots'} a side"


def _span(numbers: Sequence[int]) -> str:
    """`4`, or `4 to 16`."""
    return " to ".join(dict.fromkeys(map(str, (min(numbers), max(numbers)))))


def _conditions(study: Study) -> list[str]:
    """Machine, runtime, weights, layers, load, and what else every reader must know."""
    spec, runtime = study.default, study.environment.runtime
    is_ours = runtime.kind == "reference"
    records = [entry.record for entry in study.entries]
    is_random = RANDOM_WEIGHTS in study.labels or all(
        has_random_weights(one.trial.runtime, one.resolved) for one in records
    )
    weights = RANDOM_WEIGHTS if is_random else "real weights"
    found = [study.machine, f"{runtime.kind} {runtime.version}"]
    if runtime.kind != "external":
        found.append(weights)
    layers = None if is_ours else (read_config(spec.model) or {}).get("num_hidden_layers")
    if isinstance(layers, int):
        found.append(f"{layers} layers")
    found.append(_load_words(study))
    found += [label for label in study.labels if label != RANDOM_WEIGHTS and (label != SIMULATED or study.is_simulated)]
    return [*found, *(["no accuracy gate"] if study.is_ungated else [])]


def _load_words(study: Study) -> str:
    """`1 request at a time`, `4 to 16 requests at a time`, or at a rate."""
    limits = [load.max_concurrency for load in study.workloads.values() if load.max_concurrency is not None]
    if not limits:
        return "open loop"
    return f"{_span(limits)} {'request' if max(limits) == 1 else 'requests'} at a time"

"""Which boots brought what they were begun for: a budget pays for these, and for those that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Failed, Record


def settle(records: Sequence[Record]) -> Iterator[Record]:
    """Of one trial's records in order those that count: a transient fault is settled by its one retry only."""
    waiting = False
    for record in records:
        retryable = isinstance(record.outcome, Failed) and record.outcome.transient
        if retryable and not waiting:
            waiting = True
            continue
        waiting = False
        yield record


def finished_boots(config: StudyConfig, records: Iterable[Record]) -> set[str]:
    """The boots of one round that failed, or that recorded every trial which their setting lacked when they began.

    The others were interrupted, or their records were lost: another boot makes up for them. A journal does not say what
    a boot was begun for; that follows from what had been recorded before it, as it did then.
    """
    finished: set[str] = set()
    earlier: dict[tuple[str, str], list[Record]] = defaultdict(list)
    searched: set[tuple[str, str]] = set()
    for boot in _in_order(records):
        first = boot[0]
        spec_id, phase = first.trial.runtime.id, first.phase
        of_setting = earlier[spec_id, phase]
        lacking = _lacking(_settled(config, of_setting))
        if phase == "search" and config.budget.max_trials is not None:
            lacking = lacking[: max(0, config.budget.max_trials - len(searched))]
        of_setting += boot
        if phase == "search":
            searched.update((spec_id, name) for name, count in _settled(config, of_setting).items() if count)
        failed = any(isinstance(record.outcome, Failed) for record in boot)
        if failed or {record.trial.workload.name for record in boot}.issuperset(lacking):
            finished.add(first.boot)
    return finished


def _in_order(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each boot, in the order in which the boots' first trials began."""
    boots: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started_at):
        boots[record.boot].append(record)
    return list(boots.values())


def _settled(config: StudyConfig, records: Sequence[Record]) -> dict[str, int]:
    """How many of a setting's records count, by workload."""
    return {
        workload.name: sum(1 for _ in settle([one for one in records if one.trial.workload == workload]))
        for workload in config.workloads
    }


def _lacking(settled: Mapping[str, int]) -> list[str]:
    """The workloads that the next boot takes: those with the fewest records."""
    fewest = min(settled.values())
    return [name for name, count in settled.items() if count == fewest]

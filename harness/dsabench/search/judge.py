"""Best against default from the confirmation's boots alone: the search picked its winner by looking, these did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.verdict import Verdict
from dsabench.search.ledger import Ledger
from dsabench.stats.compare import ALPHA, BootValue, ComparisonSpec, compare_boots, judge_family

Confirmed = Mapping[str, tuple[Record, ...]]
"""Workload → records."""
EQUIVALENCE = 0.01
"""A difference of 1 % or less matters to nobody's choice of a default."""


def judge(ledger: Ledger, best: RuntimeSpec, round_: int, heat: int = 0) -> tuple[Verdict, ...]:
    """A verdict per workload for the objective and each constrained metric, corrected over the family.

    The default's boots are those of the heat in which the best setting was confirmed.
    """
    config = ledger.config
    of_heat = slice(heat * config.budget.confirm_boots, (heat + 1) * config.budget.confirm_boots)
    base = {name: found[of_heat] for name, found in ledger.of_setting(config.default, "confirm", round_).items()}
    return judge_sides(config, base, ledger.of_setting(best, "confirm", round_))


def judge_against(ledger: Ledger, best: RuntimeSpec, rival: RuntimeSpec, round_: int) -> tuple[Verdict, ...]:
    """The same against another setting that was confirmed in the same turns; a family of its own."""
    base, candidate = (ledger.of_setting(spec, "confirm", round_) for spec in (rival, best))
    return judge_sides(ledger.config, base, candidate)


def judge_sides(config: StudyConfig, base: Confirmed, candidate: Confirmed) -> tuple[Verdict, ...]:
    """The same of records that the caller chose, by workload; one that a side lacks is undecided."""
    metrics = dict.fromkeys([config.objective.metric, *(bound.metric for bound in config.objective.constraints)])
    family = [
        compare_boots(
            ComparisonSpec(metric, workload.name, METRICS[metric].direction, paired=True, equivalence=EQUIVALENCE),
            boot_values(base.get(workload.name, ()), metric),
            boot_values(candidate.get(workload.name, ()), metric),
        )
        for workload in config.workloads
        for metric in metrics
    ]
    return judge_family(family)


def levels(family: Sequence[Verdict]) -> str:
    """The levels of a family's intervals, as `95 to 98.8 % (Holm)`: each verdict's own stands in its reason."""
    tested = sum(verdict.ci_low is not None for verdict in family)
    alone = f"{100 * (1 - ALPHA):.3g}"
    return f"{alone} %" if tested < 2 else f"{alone} to {100 * (1 - ALPHA / tested):.3g} % (Holm)"


def boot_values(records: tuple[Record, ...], metric: str) -> list[BootValue]:
    """The metric of every record that has it, with the boot it came from."""
    return [
        BootValue(record.boot, outcome.metrics[metric].value)
        for record in records
        if isinstance(outcome := record.outcome, Measured) and metric in outcome.metrics
    ]

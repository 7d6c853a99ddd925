"""What stands above an emitted best setting: how much better it is than the default, how sure that is, what it may cost."""

from __future__ import annotations

from collections.abc import Iterator

from dsabench.cli.format import show_figure, show_percent
from dsabench.config.specs import StudyConfig
from dsabench.emit.best_setting import Best
from dsabench.evals.numerics import changed_numerics
from dsabench.model.runtime import labels_of
from dsabench.model.verdict import Verdict


def about_best(config: StudyConfig, best: Best) -> tuple[str, ...]:
    """One line each."""
    return tuple(_lines(config, best))


def _lines(config: StudyConfig, best: Best) -> Iterator[str]:
    chosen, metric = best.chosen, config.objective.metric
    boots = f"median of {chosen.boots} boots" if chosen.boots > 1 else "one boot"
    yield f"best of {config.name} under {best.workload}: {metric} {show_figure(chosen.value)}, {boots}"
    if chosen.spec == best.default:
        yield "this is the default itself: nothing else that was measured and may be a default is better"
    elif not chosen.is_confirmed:
        yield "not confirmed: picked by looking at the search, never held against the default in turns"
    elif not best.verdicts:
        yield "not held against the default: no boots of both took turns"
    yield from (f"against the default, {_said(verdict)}" for verdict in best.verdicts)
    if labels := labels_of(chosen.spec):
        yield f"measured with {', '.join(labels)}: speeds are those of the shapes, outputs mean nothing"
    yield from _accuracy(best)
    for one in best.left_out:
        label = one.spec.changes(best.default)
        yield f"left out although {metric} is {show_figure(one.value)}: {label}: {one.why_not}"


def _said(verdict: Verdict) -> str:
    """`answer: inconclusive, +27.1 % (-16.3 % to +92.9 %), 2 and 2 boots`, and what that means."""
    interval = "" if verdict.ci_low is None else f" ({show_percent(verdict.ci_low)} to {show_percent(verdict.ci_high)})"
    boots = f"{verdict.n_base} and {verdict.n_candidate} boots"
    line = f"{verdict.workload}: {verdict.verdict}, {show_percent(verdict.effect)}{interval}, {boots}"
    if verdict.verdict == "inconclusive":
        return f"{line}: whether it is better is not shown; {verdict.reason}"
    return line


def _accuracy(best: Best) -> Iterator[str]:
    numeric = changed_numerics(best.default, best.chosen.spec)
    if not numeric:
        return
    line = f"may answer otherwise than the default ({', '.join(numeric)})"
    if not best.gates:
        yield f"{line}: accuracy unproven, for there is no gate in the config, or random weights that it means nothing for"
    for gate in best.gates:
        yield f"{line}: passed the gate {gate.eval} ({gate.verdict}, margin {gate.margin:g}, {gate.n} questions)"

"""Draft steps of multi-token prediction: what a step costs at each batch size, and the steps that this is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from dsabench.config.runtime_kinds import has_random_weights
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.dataset import DATASETS
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.runtime import SIMULATED
from dsabench.model.sample import RequestSample
from dsabench.model.study import ImpliedKnobs
from dsabench.model.study_result import StudyResult
from dsabench.model.tuned_table import StepsRule, TunedTable
from dsabench.model.value import KnobValue
from dsabench.results.samples import read_samples
from dsabench.sglang.model_config import full_widths
from dsabench.tuners.of_sweep import TunePlan, table_of_sweep, why_not_better, why_unfinished
from dsabench.tuners.target import target_of

ALGORITHM, STEPS = "speculative_algorithm", "speculative_num_steps"
_AXES = {ALGORITHM, STEPS, "speculative_eagle_topk", "speculative_num_draft_tokens"}
ACCEPT_RATE = 0.85
"""Share of drafts of DeepSeek-V3's own layer that its report says are accepted: 85 to 90 %."""
_RATES = tuple(index / 100 for index in range(101))


def accept_length(rate: float, steps: int) -> float:
    """Tokens of a decode step with so many drafts, each accepted at this rate where those before it were: Σ rate^i, i = 0 … steps."""
    return sum(rate**drafts for drafts in range(steps + 1))


def accept_rate(length: float, steps: int) -> float:
    """The rate that gives this many tokens a step; 0 to 1."""
    from scipy.optimize import brentq  # noqa: PLC0415  (a quarter of a second that only this needs)

    wanted = min(max(length, 1.0), steps + 1.0)
    return float(brentq(lambda rate: accept_length(rate, steps) - wanted, 0.0, 1.0))


def require_mtp_study(config: StudyConfig) -> None:
    """Refuse a space that mixes draft steps with other settings, and a base that drafts.

    Raises:
        InputError: no axis of steps, another axis, or no baseline without drafts.

    """
    axes = {axis.name for axis in config.space.axes}
    if missing := {ALGORITHM, STEPS} - axes:
        raise InputError(f"{config.name}: tune mtp needs the axis {min(missing)} (sweeps: [dsa_mtp])")
    if others := axes - _AXES:
        raise InputError(f"{config.name}: the axis {min(others)} is no setting of multi-token prediction")
    if config.runtime.base.get(ALGORITHM) != "off":
        raise InputError(f'{config.name}: base must say {ALGORITHM}: "off", the baseline of a step without drafts')


def plan_mtp(config: StudyConfig, rate: float) -> TunePlan:
    """Order the steps by accept length over cost, where a draft costs one layer of the model. Random weights accept nothing, so with
    them the accept length is pinned to what the rate gives.

    Raises:
        InputError: as `require_mtp_study`.

    """
    require_mtp_study(config)
    layers = target_of(config).layers
    axis = next(axis.values for axis in config.space.axes if axis.name == STEPS)
    counts = sorted(value for value in axis if isinstance(value, int))
    speeds = {steps: accept_length(rate, steps) / (1 + steps / layers) for steps in counts}
    best = sorted(counts, key=lambda steps: -speeds[steps])
    lines = tuple(
        f"{steps} draft steps: {accept_length(rate, steps):.2f} tokens a step at an accept rate of {rate:g}, "
        f"÷ (1 + {steps}/{layers} layers) = {speeds[steps]:.2f} × the speed without, if verification costs nothing"
        for steps in best
    )
    pinned = config.runtime.base.get("load_format") == "dummy"
    follow = tuple(
        ImpliedKnobs(when=drafting(steps), then={"simulated_accept_length": round(accept_length(rate, steps), 2)})
        for steps in counts
        if pinned
    )
    enqueued = tuple(drafting(steps) for steps in best)
    space = config.space.model_copy(update={"enqueued": enqueued, "follow": (*config.space.follow, *follow)})
    return TunePlan(config.model_copy(update={"space": space}), lines)


def drafting(steps: int) -> dict[str, KnobValue]:
    """The settings of so many draft steps. DSA takes one draft a step, so one more token is verified."""
    more = {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": steps + 1}
    return {ALGORITHM: "EAGLE", STEPS: steps, **more}


@dataclass(frozen=True, slots=True)
class StepCost:
    """One number of steps at one batch size."""

    workload: str
    batch: int
    """Requests that decode at once."""
    steps: int
    """0 is without drafts."""
    step_ms: float
    """Of a decode step, drafts and verification, between which nobody's prompt is read; median over boots."""
    cost: float
    """The same over that of a step without drafts."""
    accepted: float
    """Tokens of a step, as measured."""
    boots: int
    is_written: bool
    """Whether the prompts are text, so that `accepted` is that of use."""


def step_costs(records: Sequence[Record], folder: Path) -> list[StepCost]:
    """By batch size, then by steps. A workload without a measured baseline is left out.

    Raises:
        InputError: the folder lacks the samples of a record.

    """
    found: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
    written: dict[str, bool] = {}
    for record in records:
        trial, outcome = record.trial, record.outcome
        if not isinstance(trial, Trial) or not isinstance(outcome, Measured):
            continue
        load, steps = trial.workload, _steps_of(trial.runtime.knobs)
        length = outcome.metrics.get("accept_length.weighted")
        if outcome.samples is not None and (length is not None or not steps):
            tokens = length.value if length is not None and steps else 1.0
            step_ms = _step_ms(read_samples(folder / outcome.samples), tokens)
            if step_ms is not None:
                key = (load.max_concurrency or load.num_prompts, load.name, steps)
                found.setdefault(key, []).append((step_ms, tokens))
                written[load.name] = DATASETS[load.dataset].is_written
    costs = []
    for (batch, name, steps), values in sorted(found.items()):
        base = found.get((batch, name, 0))
        if base is not None:
            step_ms, without = (median(ms for ms, _ in some) for some in (values, base))
            accepted = median(tokens for _, tokens in values)
            costs.append(StepCost(name, batch, steps, step_ms, step_ms / without, accepted, len(values), written[name]))
    return costs


def _step_ms(samples: Sequence[RequestSample], tokens: float) -> float | None:
    """Time of a step with so many tokens, from the median distance of a request's frames. The mean would have the prefill of other requests
    in it, of which each step has more the fewer steps a request takes.
    """
    counts = np.concatenate([np.empty(0, np.int32), *(sample.frames.tokens[1:] for sample in samples)])
    if not counts.any():
        return None
    gaps_s = np.concatenate([np.diff(sample.frames.at_s) for sample in samples])
    return float(1e3 * np.median(gaps_s) * tokens / counts.mean())  # a frame may hold several steps (`stream_interval`)


def _steps_of(knobs: Mapping[str, KnobValue]) -> int:
    steps = knobs.get(STEPS)
    return steps if isinstance(steps, int) and knobs.get(ALGORITHM) not in {None, "off"} else 0


def measured_rate(costs: Sequence[StepCost]) -> float | None:
    """The accept rate behind the measured accept lengths of text, the median over workloads and steps; None where nothing drafted."""
    rates = [accept_rate(one.accepted, one.steps) for one in costs if one.steps and one.is_written]
    return median(rates) if rates else None


@dataclass(frozen=True, slots=True)
class Slot:
    """What a batch size is worth."""

    batch: int
    best: int
    """Steps with the most tokens a second at the accept rate."""
    speeds: Mapping[int, float]
    """Steps → speed over that without drafts, at the accept rate."""
    candidates: tuple[int, ...]
    """Steps that are the fastest at some accept rate: among them the runtime may move with the text."""


def slots_of(costs: Sequence[StepCost], rate: float) -> list[Slot]:
    """One for each batch size, ascending; of several workloads at one, the mean of their costs."""
    by_batch: dict[int, dict[int, list[float]]] = {}
    for one in costs:
        by_batch.setdefault(one.batch, {}).setdefault(one.steps, []).append(one.cost)
    slots = []
    for batch, found in sorted(by_batch.items()):
        cost = {steps: sum(values) / len(values) for steps, values in sorted(found.items())}
        speeds = {steps: accept_length(rate, steps) / cost[steps] for steps in cost}
        winners = {max(cost, key=lambda steps: accept_length(text, steps) / cost[steps]) for text in _RATES}
        slots.append(Slot(batch, max(speeds, key=speeds.__getitem__), speeds, tuple(sorted(winners))))
    return slots


def table_of(
    config: StudyConfig, result: StudyResult, folder: Path, rate: float | None, command: str
) -> tuple[TunedTable | None, list[StepCost], list[Slot], str]:
    """The schedule by batch size, what it rests on, and one line on where it stands.

    Args:
        config: of the study.
        result: what it came to.
        folder: of its journal and samples.
        rate: the accept rate of text; None takes the measured one, which random tokens, random weights and a pinned accept length do
            not have.
        command: that measures it again.

    Raises:
        InputError: the folder lacks the samples of a record.

    """
    costs = step_costs(result.records, folder)
    labels = {label for record in result.records for label in record.labels}
    measured = [record for record in result.records if isinstance(record.outcome, Measured)]
    is_random = any(has_random_weights(record.trial.runtime, record.resolved) for record in measured)
    known = rate if rate is not None else (None if is_random or SIMULATED in labels else measured_rate(costs))
    slots = slots_of(costs, ACCEPT_RATE if known is None else known)
    if (why := why_unfinished(config, result)) is not None:
        return None, costs, slots, f"unfinished: {why}"
    if (why := why_not_better(config, result)) is not None:
        return None, costs, slots, f"not faster than without drafts: {why}"
    if known is None:
        said = "the accept length is not that of text (random tokens, random weights, or pinned); --accept-rate says it"
        return None, costs, slots, f"costs measured, no schedule: {said}"
    if config.runtime.base.get("dp_attention") is True:
        said = "sglang does not adapt steps under DP attention; `emit RESULT --as command` gives the best setting"
        return None, costs, slots, f"no schedule: {said}"
    rule = StepsRule(
        batch_sizes=tuple(slot.batch for slot in slots),
        candidates=tuple(slot.candidates for slot in slots),
        steps=tuple(slot.best for slot in slots),
    )
    told = f"accept rate {known:.3g}, {'as given' if rate is not None else 'as measured'}"
    conditions = [told, *_of_slice(config)]
    table = table_of_sweep(rule, config, result, conditions, command)
    return table, costs, slots, "; ".join(["faster", *conditions])


def _of_slice(config: StudyConfig) -> list[str]:
    """What a slice says too much of: a draft layer is a larger share of fewer layers."""
    target = target_of(config)
    if target.runtime != "sglang":  # the reference runtime serves its models whole
        return []
    layers, all_layers = target.layers, full_widths(config.runtime.model).layers
    if layers >= all_layers:
        return []
    return [
        f"{layers} of {all_layers} layers, so a draft costs 1/{layers} of a step where the model's costs 1/{all_layers}"
    ]

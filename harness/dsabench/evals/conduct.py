"""One eval from its plan to its record: resume or begin, warm up, ask, grade, write down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from dsabench.config.runtime_kinds import has_random_weights
from dsabench.errors import TrialFault
from dsabench.evals.ask import WARM_UP, Failure, Target, ask, client_for
from dsabench.evals.plan import Plan
from dsabench.evals.run import Effort, Pace, run
from dsabench.evals.sample_log import open_log
from dsabench.evals.summarise import Tally, summarise, tally
from dsabench.load.judge.validity import too_many_failed
from dsabench.model.environment import Environment
from dsabench.model.record import EvalTrial, Failed, Outcome, Phase, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.journal import Journal

_WARM_UP_TIMEOUT_S = 600.0
_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """What answers, and where the record goes."""

    runtime: RuntimeSpec
    environment: Environment
    journal: Journal
    boot: str
    study: str
    phase: Phase = "search"
    round: int = 0
    boot_s: float | None = None
    resolved: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def has_random_weights(self) -> bool:
        """Whether the answers mean nothing."""
        return has_random_weights(self.runtime, self.resolved)


@dataclass(frozen=True, slots=True)
class Finished:
    """An eval that asked everything."""

    record: Record
    tally: Tally
    pace: Pace
    resumed: int
    """Samples that an earlier run left."""
    samples: Path

    @property
    def is_scored(self) -> bool:
        """Whether enough requests succeeded for a score."""
        return self.record.outcome.kind == "scored"


async def conduct(
    plan: Plan, target: Target, setting: Setting, effort: Effort, on_resume: Callable[[int], None]
) -> Finished:
    """Run or resume.

    Raises:
        TrialFault: the server is gone; what is finished is kept for the next run.
        BusyError: another process runs the same.
        StoreError: samples or record could not be written.

    """
    folder = setting.journal.path.parent / "samples"
    key = plan.key(setting.runtime, target.model, setting.environment)
    started_at = datetime.now(UTC)
    with open_log(folder / f"{plan.task.name}-{key[:12]}.partial.jsonl") as log:
        if log.resumed:
            on_resume(log.resumed)
        await _warm_up(plan, target)
        pace = await run(plan, target, log, effort)
        counted = tally(log.samples, [question.id for question in plan.questions])
        occasion = _next_occasion(setting, EvalTrial(runtime=setting.runtime, workload=plan.task).id)
        final = folder / f"{plan.task.name}-{key[:12]}-{occasion}.jsonl"
        # One with too many failed requests stays unfinished, so that they are asked again.
        path = log.path if _too_many_failed(counted) else final
        record = record_of(plan, setting, counted, pace, samples=path, started_at=started_at)
        with nullcontext() if path == log.path else log.finished_as(final):
            setting.journal.append(record)
    return Finished(record, counted, pace, log.resumed, path)


def record_of(
    plan: Plan, setting: Setting, counted: Tally, pace: Pace, *, samples: Path, started_at: datetime
) -> Record:
    """The record of a run that asked everything."""
    trial = EvalTrial(runtime=setting.runtime, workload=plan.task)
    return Record(
        id=trial.id,
        occasion=_next_occasion(setting, trial.id),
        boot=setting.boot,
        study=setting.study,
        round=setting.round,
        phase=setting.phase,
        trial=trial,
        environment=setting.environment,
        started_at=started_at,
        duration_s=(datetime.now(UTC) - started_at).total_seconds(),
        boot_s=setting.boot_s,
        resolved=dict(setting.resolved),
        outcome=_outcome(plan, counted, pace, samples),
    )


async def _warm_up(plan: Plan, target: Target) -> None:
    """One request that is no question, so that the first question does not pay for what is compiled on first use."""
    task = plan.task.model_copy(update={"max_tokens": min(_WARM_UP_TOKENS, plan.task.max_tokens), "thinking": None})
    reply = await ask(client_for(target, task, _WARM_UP_TIMEOUT_S), task, target, WARM_UP)
    # Any other failure is left to the questions, which are retried and counted.
    if isinstance(reply, Failure) and reply.unreachable:
        raise TrialFault("unreachable", f"{target.base_url}: {reply.message}", stage="warmup", transient=True)


def _next_occasion(setting: Setting, trial_id: str) -> int:
    fingerprint = setting.environment.fingerprint
    same = [
        record.occasion
        for record in setting.journal.read().records
        if record.id == trial_id and record.environment.fingerprint == fingerprint
    ]
    return max(same, default=-1) + 1


def _too_many_failed(counted: Tally) -> bool:
    return too_many_failed(counted.failed, counted.total)


def _outcome(plan: Plan, counted: Tally, pace: Pace, samples: Path) -> Outcome:
    if _too_many_failed(counted):
        errors = [sample.error for sample in counted.samples if sample.error is not None]
        commonest = max(set(errors), key=errors.count)
        return Failed(
            stage="load",
            fault="request_errors",
            message=f"{counted.failed} of {counted.total} requests failed, mostly: {commonest}",
            transient=True,
        )
    scored = summarise(counted, duration_s=pace.duration_s, tokens=pace.completion_tokens)
    warnings = (*plan.notes, *scored.warnings)
    return scored.model_copy(update={"samples": f"samples/{samples.name}", "warnings": warnings})

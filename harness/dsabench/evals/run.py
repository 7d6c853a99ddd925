"""Ask every question, many at a time, and grade each answer as it comes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dsabench.errors import StoreError, TrialFault
from dsabench.evals.ask import Failure, Reply, Target, ask, client_for
from dsabench.evals.grading_process import Grading, grading
from dsabench.evals.plan import Plan
from dsabench.evals.question import Question
from dsabench.evals.sample import EvalSample, graded
from dsabench.evals.sample_log import SampleLog
from dsabench.http import HttpClient, accepts_connections
from dsabench.load.process import allow_open_files, no_full_collections

_BACKOFF_MAX_S = 16.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    done: int
    total: int
    score: float
    """Mean of the samples that are done."""
    retries: int
    since_s: float
    """Seconds since this run (not an earlier one that it resumes) began."""
    done_now: int
    """Samples of this run."""

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None before the first answer."""
        return None if self.done_now == 0 else self.since_s * (self.total - self.done) / self.done_now


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a run tries."""

    concurrency: int
    timeout_s: float
    retries: int = 5
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Pace:
    """What this run (not those before it) took."""

    duration_s: float
    completion_tokens: int
    retries: int


async def run(plan: Plan, target: Target, log: SampleLog, effort: Effort) -> Pace:
    """Ask what the log does not hold yet; every sample is in the log when this returns.

    Raises:
        TrialFault: the server is gone (`unreachable`); finished samples stay in the log.
        StoreError: a sample could not be written.

    """
    allow_open_files(effort.concurrency)
    with grading(plan.spec.scorer) as grade, no_full_collections():
        async with client_for(target, plan.task, effort.timeout_s).keep_connections() as kept:
            runner = _Runner(plan, target, log, effort, kept, grade)
            await runner.run()
    return runner.pace()


@dataclass(slots=True)
class _Runner:
    plan: Plan
    target: Target
    log: SampleLog
    effort: Effort
    client: HttpClient
    grade: Grading
    retries: int = 0
    score_sum: float = 0.0
    started_s: float = field(default_factory=time.perf_counter)

    async def run(self) -> None:
        finished = {sample.id for sample in self.log.samples}
        self.score_sum = sum(sample.score for sample in self.log.samples)
        jobs = iter([job for job in self.plan.jobs() if sample_id(*job) not in finished])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.effort.concurrency, self.plan.total - len(finished))):
                    group.create_task(self._keep_asking(jobs))
        except* (TrialFault, StoreError) as faults:
            # On a full disk every request in flight fails alike: one line says it.
            raise faults.exceptions[0] from None

    def pace(self) -> Pace:
        fresh = self.log.samples[self.log.resumed :]
        tokens = sum(sample.completion_tokens or 0 for sample in fresh)
        return Pace(time.perf_counter() - self.started_s, tokens, self.retries)

    async def _keep_asking(self, jobs: Iterator[tuple[Question, int]]) -> None:
        for question, repeat in jobs:
            sample = await self._sample(question, repeat)
            self.log.append(sample)
            self.score_sum += sample.score
            done = len(self.log.samples)
            since_s = time.perf_counter() - self.started_s
            progress = Progress(
                done, self.plan.total, self.score_sum / done, self.retries, since_s, done - self.log.resumed
            )
            self.effort.on_progress(progress)

    async def _sample(self, question: Question, repeat: int) -> EvalSample:
        reply, attempts = await self._insist(question.prompt)
        given = {
            "id": sample_id(question, repeat),
            "question": question.id,
            "repeat": repeat,
            "group": question.group,
            "harness_id": self.plan.task.harness_id,
            "prompt": question.prompt,
            "expected": question.expected,
            "attempts": attempts,
            "finished_at_s": time.time(),
        }
        if isinstance(reply, Failure):
            return EvalSample(**given, score=0.0, standing="failed", error=reply.message)
        grades = await self.grade(self.plan.spec.scorer, reply.text, question.expected)
        return EvalSample(
            **given,
            completion=reply.text,
            reasoning=reply.reasoning,
            **graded(grades),
            finish_reason=reply.finish_reason,
            # An eval that asks for one token is always cut there.
            truncated=reply.finish_reason == "length" and self.plan.task.max_tokens > 1,
            prompt_tokens=reply.tokens("prompt_tokens"),
            completion_tokens=reply.tokens("completion_tokens"),
            reasoning_tokens=reply.tokens("reasoning_tokens"),
            latency_s=reply.latency_s,
            first_token_s=reply.first_token_s,
            accept_length=reply.accept_length,
        )

    async def _insist(self, prompt: str) -> tuple[Reply | Failure, int]:
        """Ask until there is an answer, the fault stays, or the retries are used up."""
        for attempt in range(self.effort.retries + 1):
            reply = await ask(self.client, self.plan.task, self.target, prompt)
            if isinstance(reply, Reply) or not reply.passing or attempt == self.effort.retries:
                break
            self.retries += 1
            await asyncio.sleep(min(2.0**attempt, _BACKOFF_MAX_S) * random.uniform(0.5, 1.0))
        if isinstance(reply, Failure) and reply.unreachable and not await accepts_connections(self.target.base_url):
            raise TrialFault("unreachable", f"{self.target.base_url} is gone: {reply.message}", stage="load")
        return reply, attempt + 1


def sample_id(question: Question, repeat: int) -> str:
    """`QUESTION#REPEAT`."""
    return f"{question.id}#{repeat}"

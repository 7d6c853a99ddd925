"""Run a driver and read back what it scored."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dsabench.errors import TrialFault
from dsabench.evals.careful import CAREFUL
from dsabench.evals.conduct import Finished, Setting, record_of
from dsabench.evals.drivers.predictions import read_predictions
from dsabench.evals.drivers.program import Commission, DriverName, Errands
from dsabench.evals.drivers.told import held_against, read_told
from dsabench.evals.graders import Grade
from dsabench.evals.grading_process import grading
from dsabench.evals.plan import Plan
from dsabench.evals.run import Pace
from dsabench.evals.sample import EvalSample, graded
from dsabench.evals.summarise import tally
from dsabench.model.evals import EvalTask, ScorerName
from dsabench.model.record import Scored
from dsabench.model.value import digest

_TAIL_BYTES = 8000


async def drive(name: DriverName, commission: Commission, errands: Errands, setting: Setting) -> tuple[Plan, Finished]:
    """Run the command lines, take the predictions over, and write the record.

    Raises:
        TrialFault: a command failed; carries the end of what it said.
        StoreError: the record could not be written.

    """
    started_at, started_s = datetime.now(UTC), time.perf_counter()
    commission.folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "OPENAI_API_KEY": commission.target.api_key or "EMPTY", **errands.env}
    for words in errands.commands:
        await _run(words, commission.folder, env)
    duration_s = time.perf_counter() - started_s
    told = read_predictions(commission.folder, errands.predictions, errands.harness_id)
    samples = await _read_with_care(commission.spec.scorer, told)
    plan = Plan(commission.spec, (), _task(name, commission, errands, samples))
    path = setting.journal.path.parent / "samples" / f"{commission.spec.name}-{name}-{uuid.uuid4().hex[:12]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(sample.model_dump_json() + "\n" for sample in samples), encoding="utf-8")
    pace = Pace(duration_s, sum(sample.completion_tokens or 0 for sample in samples), 0)
    counted = tally(samples)
    record = record_of(plan, setting, counted, pace, samples=path, started_at=started_at)
    if isinstance(record.outcome, Scored):
        sums = read_told(commission.folder, errands.predictions)
        record = record.model_copy(update={"outcome": held_against(record.outcome, sums)})
    setting.journal.append(record)
    return plan, Finished(record, counted, pace, 0, path)


async def _read_with_care(scorer: ScorerName, told: Sequence[EvalSample]) -> tuple[EvalSample, ...]:
    """The samples with a careful reader's grade beside the driver's."""
    samples = []
    with grading(scorer) as grade:
        for sample in told:
            if sample.completion is not None:
                own = Grade(sample.answer, bool(sample.score))
                grades = await grade(scorer, sample.completion, sample.expected, own)
                sample = sample.model_copy(update=graded(grades))  # noqa: PLW2901
            samples.append(sample)
    return tuple(samples)


async def _run(words: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    log = folder / "driver.log"
    with log.open("ab") as file:
        child = await asyncio.create_subprocess_exec(
            *words, stdout=file, stderr=file, stdin=asyncio.subprocess.DEVNULL, cwd=folder, env=env
        )
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            child.terminate()
            raise
    if code:
        tail = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        last = next((line for line in reversed(tail.splitlines()) if line.strip()), "it said nothing")
        message = f"{words[0]} {words[1]} ended with code {code}: {last.strip()[:200]} (all of it: {log})"
        raise TrialFault("exited", message, stage="load", log_tail=tail)


def _task(name: DriverName, commission: Commission, errands: Errands, samples: Sequence[EvalSample]) -> EvalTask:
    spec = commission.spec
    asked = sorted({(sample.question, sample.prompt, sample.expected) for sample in samples})
    return EvalTask(
        name=spec.name,
        harness_id=errands.harness_id,
        scorer=f"{name}'s own",
        careful=True if spec.scorer in CAREFUL else None,
        questions_sha256=digest(json.dumps(asked)),
        num_questions=len(asked),
        endpoint="chat",
        temperature=spec.sampling.temperature,
        top_p=spec.sampling.top_p,
        max_tokens=spec.sampling.max_tokens,
        thinking=spec.prompt.thinking,
        repeat=spec.repeat,
        driver=name,
    )

"""A cluster whose machines serve nothing: they measure what a server would take minutes for at once, or after a moment."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Metric, Record
from dsabench.study.machines import EvalsOfBoot, Needs
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession
from factories import ENVIRONMENT, make_record


@dataclass
class PretendedMachine:
    """Its servers are as fast as their chunks are large."""

    kept: Callable[[Record], None]
    """Told of each record that is in the journal."""
    environment: Environment = ENVIRONMENT
    seconds: float = 0.0
    """Of a trial, in the mean."""
    samples: Callable[[Path, Record], str | None] = lambda folder, record: None
    """Writes those of a record; returns the file's name."""

    async def run_boot(
        self, session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot | None = None
    ) -> tuple[Record, ...]:
        """Write a record of each trial."""
        del evals
        boot, records = str(uuid.uuid4()), []
        for one in trials:
            await asyncio.sleep(self.seconds * random.uniform(0.5, 1.5))
            value = 100.0 + float(one.trial.runtime.knobs["chunked_prefill_size"]) + self.seconds * random.random()
            outcome = Measured(metrics={"output_throughput_tok_s": Metric(value=value, n=12)})
            record = make_record(
                spec=one.trial.runtime, workload=one.trial.workload, occasion=one.occasion, phase=one.phase, round_=one.round,
                boot=boot, outcome=outcome,
            )  # fmt: skip
            own = {
                "study": session.study,
                "turn": one.turn,
                "environment": self.environment,
                "started_at": datetime.now(UTC),
            }
            record = record.model_copy(update=own)
            if (name := self.samples(session.folder, record)) is not None:
                record = record.model_copy(update={"outcome": outcome.model_copy(update={"samples": name})})
            session.journal.append(record)
            self.kept(record)
            records.append(record)
        return tuple(records)


@dataclass(frozen=True)
class PretendedCluster:
    """Several of them, or one."""

    all: Sequence[PretendedMachine]

    @asynccontextmanager
    async def machines(
        self, config: StudyConfig, needs: Needs, observer: StudyObserver
    ) -> AsyncIterator[Sequence[PretendedMachine]]:
        """All of them."""
        del config, needs, observer
        yield self.all

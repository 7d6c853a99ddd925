"""What a machine of a cluster does for a study: boot, measure beside the server, and send what it recorded.

It holds nothing: records and their files go to the process that writes the journal.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat

from dsabench.config.specs import RuntimeConfig
from dsabench.distributed.on_node import as_node_was_started
from dsabench.distributed.placement import Placement
from dsabench.errors import InputError, StoreError, TrialFault
from dsabench.machine.environment import collect_environment
from dsabench.model.record import Record
from dsabench.model.value import Value
from dsabench.results.journal import FILE_NAME, Journal
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.shares import split_machine
from dsabench.study.machines import EvalsOfBoot
from dsabench.study.session import SILENT, PlannedTrial, StudyObserver, TrialSession, open_session
from dsabench.study.trial import run_boot

_TELL_S = 0.5
"""Seconds between two counts of answered requests."""
_FILE_BYTES = 64 << 20
"""A larger log stays where it is."""


class BootOrder(Value):
    """The trials of one boot, the evals behind them, and what their records say of the study."""

    study: str
    trials: tuple[PlannedTrial, ...]
    evals: EvalsOfBoot | None = None
    known: tuple[Record, ...] = ()
    """Earlier records of the setting's evals: a new one is another occasion."""
    ready_timeout_s: PositiveFloat
    price_per_gpu_hour: float | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """What a machine tells while it boots and measures."""

    kind: Literal[
        "progress", "ready", "started", "requests", "note", "record", "logs", "input_error", "store_error", "not_gone"
    ]
    text: str = ""
    """A record as JSON, or a line."""
    numbers: tuple[float, ...] = ()
    """Seconds of the boot; the index of the trial that starts; requests done and in all."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What a record refers to: path below the folder of the journal → content."""


class Booter:
    """Boots servers on its machine, one at a time, on its share of cores and GPUs."""

    def __init__(self, runtime: str, index: int, of: int, folder: str, placement: str | None = None) -> None:
        """`runtime` is a RuntimeConfig as JSON; `index` counts the booters `of` this machine; `folder` is the working directory of whoever
        asks, taken where this machine has it, so that relative paths of a config mean the same. `placement` is a Placement as JSON, where
        servers stand on other machines too.
        """
        with suppress(OSError):
            os.chdir(folder)
        self._niceness = as_node_was_started()
        config = RuntimeConfig.model_validate_json(runtime)
        if placement is not None:
            config = Placement.model_validate_json(placement).launched(config)
        self._runtime = make_runtime(config)
        self._index, self._of = index, of
        self._folder = Path(tempfile.mkdtemp(prefix="dsabench-"))
        self._stack = AsyncExitStack()
        self._session: TrialSession | None = None
        self._running: asyncio.Task[object] | None = None

    async def environment(self) -> str:
        """What stands in its records, as JSON. The share is taken here.

        Raises:
            InputError: the runtime is not installed here, or the machine cannot be split so far.

        """
        # The scheduler of the cluster has assigned the GPUs, but no cores.
        split_machine(self._of, sorted(os.sched_getaffinity(0)), (), 0)[self._index].take()
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        session = TrialSession(
            study="",
            runtime=self._runtime,
            environment=await collect_environment(await self._runtime.identity()),
            journal=Journal(self._folder),
            folder=self._folder,
        )
        self._session = await self._stack.enter_async_context(open_session(session))
        return session.environment.model_dump_json()

    async def boot(self, order_json: str) -> AsyncIterator[Message]:
        """Boot once, measure each trial, ask the evals, and tell what happens; the servers' logs at the end.

        Raises:
            Exception: a fault of ours.

        """
        order, session = BootOrder.model_validate_json(order_json), self._session
        assert session is not None, "its environment is asked for first"
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        session.study, session.labels = order.study, order.labels
        session.ready_timeout_s, session.price_per_gpu_hour = order.ready_timeout_s, order.price_per_gpu_hour
        session.observer = _Telling(messages.put_nowait, order.trials, self._folder)
        if self._niceness:
            line = f"servers of {session.environment.host} stand back behind its other processes (niceness {self._niceness})"
            messages.put_nowait(Message("note", f"warning: {line}; start Ray there with RAY_worker_niceness=0"))
            self._niceness = 0  # told once
        self._running = running = asyncio.create_task(_run(session, order, messages))
        try:
            while (message := await messages.get()) is not None:
                yield message
            logs = [path for path in self._folder.glob("boots/**/*") if path.is_file()]
            yield Message("logs", files=_read(logs, self._folder))
            await asyncio.wait({running})
            if not running.cancelled():  # by `stop`, which was asked for
                running.result()
        finally:
            await self.stop()
            self._forget()

    async def stop(self) -> None:
        """End the boot that is under way, and wait until its server is gone."""
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        """Stop, and leave nothing behind."""
        await self.stop()
        await self._stack.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _forget(self) -> None:
        """Everything was sent: the next order may have the same trials again."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._session is not None:
            self._session.journal = Journal(self._folder)


async def _run(session: TrialSession, order: BootOrder, messages: asyncio.Queue[Message | None]) -> None:
    try:
        if order.evals is None:
            await run_boot(session, order.trials)
        else:
            await _boot_and_ask(session, order.trials, order.evals, order.known)
    except InputError as error:
        messages.put_nowait(Message("input_error", str(error)))
    except StoreError as error:
        messages.put_nowait(Message("store_error", str(error)))
    except TrialFault as fault:
        messages.put_nowait(Message("not_gone", fault.message))
    finally:
        messages.put_nowait(None)


async def _boot_and_ask(
    session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot, known: Sequence[Record]
) -> None:
    from dsabench.study.gate import open_gate  # noqa: PLC0415  (graders and questions, which most studies do without)

    for record in known:
        session.journal.append(record)
    told, session.observer = session.observer, SILENT  # whoever asks has said what the gate decides
    gate = await open_gate(evals.gates, session, evals.default, evals.round)
    session.observer = told
    if trials:
        await run_boot(session, trials, partial(gate.of_finalists, evals.spec))
    else:
        for one in gate.evals:
            await one.complete(evals.spec)


class _Telling(StudyObserver):
    """Sends on what a boot tells, and each record with its files."""

    def __init__(self, tell: Callable[[Message], None], trials: Sequence[PlannedTrial], folder: Path) -> None:
        self._tell, self._trials, self._folder = tell, trials, folder
        self._told_s = 0.0
        self._sent: set[Path] = set()

    def boot_progress(self, text: str) -> None:
        self._tell(Message("progress", text))

    def boot_ready(self, seconds: float) -> None:
        self._tell(Message("ready", numbers=(seconds,)))

    def trial_started(self, trial: PlannedTrial) -> None:
        self._tell(Message("started", numbers=(self._trials.index(trial),)))

    def requests_done(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if done == total or now_s - self._told_s > _TELL_S:
            self._told_s = now_s
            self._tell(Message("requests", numbers=(done, total)))

    def note(self, text: str) -> None:
        self._tell(Message("note", text))

    def record_written(self, record: Record) -> None:
        new = [path for path in self._files() if path not in self._sent]
        self._sent.update(new)
        self._tell(Message("record", record.model_dump_json(exclude_none=True), files=_read(new, self._folder)))

    def _files(self) -> list[Path]:
        """What records refer to: everything but the journal and what servers wrote."""
        inner = [path for path in self._folder.rglob("*") if path.is_file() and path.name != FILE_NAME]
        return [path for path in inner if path.relative_to(self._folder).parts[0] != "boots"]


def _read(paths: list[Path], folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.stat().st_size <= _FILE_BYTES}

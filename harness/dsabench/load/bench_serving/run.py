"""Send a bench run's requests and read what came back. What reads is loaded after the first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from dsabench.errors import TrialFault
from dsabench.load.drive import RawRun, send_plan, send_plan_here
from dsabench.load.plan import LoadPlan
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import EndpointName, Prompt, RequestSample
from dsabench.signals import run_loop

if TYPE_CHECKING:
    from dsabench.load.judge.machine_use import MachineUse
    from dsabench.load.judge.validity import ClientHealth
    from dsabench.load.read.json_stream import ReplyText
    from dsabench.model.record import Stage

Tell = Callable[[int, int], None]


class BenchLoad(NamedTuple):
    """What is sent, and how its answers are read."""

    plan: LoadPlan
    endpoint: EndpointName
    asked: Sequence[int | None]
    """Tokens that each body asks for; see `asked_tokens`."""
    keep_text: bool


class BenchAnswers(NamedTuple):
    """What came back."""

    samples: Sequence[RequestSample]
    spoken: Sequence[ReplyText | None]
    duration_s: float
    """From the start to the last byte."""
    health: ClientHealth
    machine: MachineUse | None = None
    """What the machine did meanwhile, where it was observed."""

    @property
    def saturated(self) -> str | None:
        """Why the numbers describe the client and not the server."""
        return self.health.saturated

    @property
    def frames(self) -> int:
        """Frames with new tokens."""
        return sum(len(sample.frames) for sample in self.samples)


def send(load: BenchLoad, tell: Tell | None, observer: MachineSampler | None = None) -> RawRun:
    """Send everything, observed meanwhile.

    Raises:
        TrialFault, InputError: see `send_plan`.

    """
    with observer or nullcontext():
        return send_plan_here(load.plan) if tell is None else run_loop(send_plan(load.plan, on_progress=tell))


def read(
    load: BenchLoad, prompts: Sequence[Prompt], run: RawRun, observer: MachineSampler | None = None
) -> BenchAnswers:
    """Read what came back, and let the recording go."""
    from dsabench.load.judge.machine_use import machine_use  # noqa: PLC0415
    from dsabench.load.judge.validity import judge_client, typical_times  # noqa: PLC0415
    from dsabench.load.read.replies import read_replies, to_samples  # noqa: PLC0415

    recording = run.recording
    try:
        answers = list(read_replies(recording, load.endpoint, load.asked, keep_text=load.keep_text))
        samples = to_samples(prompts, answers, recording)
        health = judge_client(run.vitals, run.read_counts, recording.late_s, typical_times(samples))
        machine = None if observer is None else machine_use(observer, recording.start_ns / 1e9, samples)
        spoken = [reply.spoken for reply in answers]
        return BenchAnswers(samples, spoken, float(recording.done_s.max()), health, machine)
    finally:
        recording.close()


def refuse_total_failure(seen: BenchAnswers, what: str, stage: Stage) -> None:
    """Raise TrialFault where no request ended well."""
    from dsabench.load.judge.validity import failures_of  # noqa: PLC0415

    failures = failures_of(seen.samples)
    if failures is not None and failures.failed == failures.total:
        raise TrialFault(failures.fault, failures.told(f"{what} requests"), stage=stage)

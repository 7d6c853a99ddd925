"""Send a bench run's requests and read what came back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from dsabench.load.drive import send_plan, send_plan_here
from dsabench.load.judge.machine_use import MachineUse, machine_use
from dsabench.load.judge.validity import ClientHealth
from dsabench.load.plan import ClosedLoop, LoadPlan, OpenLoop, RequestTimeouts, SizeLimits
from dsabench.load.read.json_stream import ReplyText
from dsabench.load.read.replies import read_replies, to_samples
from dsabench.load.requests import EndpointName
from dsabench.load.schedule import Times
from dsabench.machine.sampler import MachineSampler
from dsabench.model.sample import Prompt, RequestSample
from dsabench.signals import run_loop

Tell = Callable[[int, int], None]


class BenchLoad(NamedTuple):
    """What is sent, where and when."""

    url: str
    endpoint: EndpointName
    headers: Mapping[str, str]
    bodies: Sequence[bytes]
    due_s: Times | None
    """Seconds after the start; None keeps `max_concurrency` slots busy."""
    max_concurrency: int | None
    timeout_s: float
    workers: int | None
    keep_text: bool
    limits: SizeLimits
    asked: Sequence[int | None]
    """Tokens that each body asks for; see `asked_tokens`."""

    @property
    def plan(self) -> LoadPlan:
        """All at once is a closed loop with a slot for each, as far as there are slots."""
        timeouts = RequestTimeouts(total_s=self.timeout_s)
        if self.due_s is None or not self.due_s.any():
            pacing: ClosedLoop | OpenLoop = ClosedLoop(self.max_concurrency or len(self.bodies))
        else:
            pacing = OpenLoop(self.due_s.tolist(), self.max_concurrency)
        return LoadPlan(self.url, self.bodies, pacing, self.headers, timeouts, self.limits, self.workers)


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


def measure(
    load: BenchLoad, prompts: Sequence[Prompt], tell: Tell | None, observer: MachineSampler | None = None
) -> BenchAnswers:
    """Send everything, observed meanwhile, and read what came back afterwards.

    Raises:
        TrialFault, InputError: see `drive`.

    """
    plan = load.plan
    with observer or nullcontext():
        driven = send_plan_here(plan) if tell is None else run_loop(send_plan(plan, on_progress=tell))
    recording = driven.recording
    try:
        health = driven.health()
        answers = list(read_replies(recording, load.endpoint, load.asked, keep_text=load.keep_text))
        samples = to_samples(prompts, answers, recording)
        machine = None if observer is None else machine_use(observer, recording.start_ns / 1e9, samples)
        return BenchAnswers(
            samples, [reply.spoken for reply in answers], float(recording.done_s.max()), health, machine
        )
    finally:
        recording.close()

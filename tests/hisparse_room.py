"""What HiSparse's measured paces let expect where every setting has its own pool: arithmetic on records, no measurement.

python tests/hisparse_room.py

Of like requests that come at once, sglang computes all prompts that it has room for, decodes these to their end, and takes
the next lot. So a run takes prompts × seconds a prompt + lots × answer × seconds a step. Both paces are read from each lot of
the samples; a step's is a line over the requests that decode. First the measured runs are put together again from them, with
the error. Then the same is done with the room that a full rank's own pool has (`dsabench tune hisparse --dry-run`), for the
load that was measured and for the one that is planned. More requests than were ever measured extend the line, which nothing
has tested: so the step at which the gain is gone is printed too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from dsabench.config.load import load_study
from dsabench.model.record import Measured, Record
from dsabench.model.sample import RequestSample
from dsabench.model.workload import Workload
from dsabench.results.journal import Journal
from dsabench.results.samples import read_samples
from dsabench.tuners.hisparse import OFF, pool_of
from dsabench.tuners.hisparse_memory import KV_BYTES, Demand, Rank

ROOT = Path(__file__).parents[1]
Kind = tuple[str, str]
"""HiSparse off or on, and the KV dtype: what paces depend on most."""


@dataclass(frozen=True, slots=True)
class Setting:
    dtype: str
    ratio: int
    """Host to device; OFF without HiSparse."""

    @property
    def kind(self) -> Kind:
        return "off" if self.ratio == OFF else "on", self.dtype

    def __str__(self) -> str:
        return f"off, {self.dtype}" if self.ratio == OFF else f"on, {self.dtype}, ratio {self.ratio}"


BUFFER = 4096
SETTINGS = (Setting("bfloat16", OFF), Setting("fp8_e4m3", OFF), Setting("fp8_e4m3", 2), Setting("bfloat16", 8))
"""The three baselines and the best of the records, those with HiSparse with that buffer."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Requests that decode together."""

    requests: int
    prompt_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Paces:
    """What all lots of one KV dtype, with HiSparse on or off, say together."""

    lots: tuple[Lot, ...]

    @property
    def prompt_s(self) -> float:
        return fmean(lot.prompt_s for lot in self.lots)

    @property
    def sizes(self) -> list[int]:
        return sorted({lot.requests for lot in self.lots})

    def step_s(self, requests: int) -> float:
        slope, base = np.polyfit([lot.requests for lot in self.lots], [lot.step_s for lot in self.lots], 1)
        return float(base + slope * requests)

    def run_s(self, prompts: int, answer: int, room: int) -> float:
        return prompts * self.prompt_s + sum(answer * self.step_s(size) for size in lots_of(prompts, room))


def lots_of(prompts: int, room: int) -> Iterator[int]:
    """Sizes of the lots in turn."""
    for done in range(0, prompts, room):
        yield min(room, prompts - done)


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    setting: Setting
    prompts: int
    answer: int
    took_s: float
    lots: tuple[Lot, ...]


def runs_in(folder: Path) -> Iterator[Run]:
    for record in Journal(folder).read().records:
        if isinstance(record.outcome, Measured):
            load, took = record.trial.workload, record.outcome.metrics["duration_s"].value
            assert isinstance(load, Workload)
            assert load.output_len is not None
            lots = tuple(lots_in(read_samples(folder / str(record.outcome.samples))))
            yield Run(record.id[:8], setting_of(record), load.num_prompts, load.output_len, took, lots)


def paces_of(runs: Sequence[Run]) -> dict[Kind, Paces]:
    kinds = {run.setting.kind for run in runs}
    return {kind: Paces(tuple(lot for run in runs if run.setting.kind == kind for lot in run.lots)) for kind in kinds}


def setting_of(record: Record) -> Setting:
    knobs = record.trial.runtime.knobs
    ratio = knobs["hisparse_host_to_device_ratio"] if knobs["hisparse"] else OFF
    assert isinstance(ratio, int)
    return Setting(str(knobs["kv_cache_dtype"]), ratio)


def lots_in(samples: Sequence[RequestSample]) -> Iterator[Lot]:
    """The lots of a run: one begins where a first token comes after another request's last."""
    start, waiting = 0.0, sorted(samples, key=lambda sample: sample.frames.at_s[0])
    while waiting:
        ends = min(sample.frames.at_s[-1] for sample in waiting)
        lot = [sample for sample in waiting if sample.frames.at_s[0] < ends]
        waiting = waiting[len(lot) :]
        prefilled = lot[-1].frames.at_s[0]
        decoded = median(sample.frames.at_s[-1] for sample in lot)
        yield Lot(len(lot), (prefilled - start) / len(lot), (decoded - prefilled) / (lot[0].output_tokens - 1))
        start = decoded


def main() -> None:
    runs = list(runs_in(ROOT / "results" / "h200" / "hisparse"))
    paces = paces_of(runs)
    print("measured: requests of each lot, seconds, and the seconds that the paces give")
    for run in runs:
        said = paces[run.setting.kind].run_s(run.prompts, run.answer, run.lots[0].requests)
        sizes = ", ".join(str(lot.requests) for lot in run.lots)
        print(f"  {run.id} {run.setting!s:22} {sizes:8} {run.took_s:.2f} {said:.2f} {said / run.took_s - 1:+.1%}")
    for kind, pace in sorted(paces.items()):
        steps = ", ".join(f"{1e3 * pace.step_s(size):.2f} at {size}" for size in pace.sizes)
        print(f"  {', '.join(kind)}: {pace.prompt_s:.3f} s a prompt; ms a step {steps} requests")
    for name in ("h200-hisparse", "h200-hisparse-rank"):
        expect(name, paces)


def expect(name: str, paces: Mapping[Kind, Paces]) -> None:
    """Print what the load of a config would take under the baselines and the best setting of the records."""
    config = load_study(name)
    load, rank = config.workloads[0], pool_of(config, gpus=8)
    assert load.input_len is not None
    assert load.output_len is not None
    prompts, answer = load.num_prompts, load.output_len
    print(
        f"expected: {prompts} requests of {load.input_len:,} + {answer:,} tokens at once, each setting in its own pool"
    )
    taken: list[float] = []
    for setting in SETTINGS:
        room = min(prompts, room_of(setting, rank, load.input_len + answer))
        taken.append(paces[setting.kind].run_s(prompts, answer, room))
        print(f"  {setting!s:22} room for {room:2}: {taken[-1]:.1f} s, {prompts * answer / taken[-1]:,.0f} tokens/s")
    best = paces[SETTINGS[-1].kind]
    for rival, seconds in zip(SETTINGS[:-1], taken, strict=False):
        even = 1e3 * (seconds - prompts * best.prompt_s) / answer
        step = 1e3 * best.step_s(prompts)
        print(
            f"  {SETTINGS[-1]} against {rival}: {seconds / taken[-1] - 1:+.1%}; even at {even:.1f} ms a step, not {step:.1f}"
        )


def room_of(setting: Setting, rank: Rank, request_tokens: int) -> int:
    """Requests that a full rank holds at once."""
    kv_bytes = KV_BYTES[setting.dtype]
    pool = rank.pool_tokens(kv_bytes, setting.ratio)
    if setting.ratio == OFF:
        return pool // request_tokens
    demand = Demand(BUFFER, setting.ratio, kv_bytes, pool, rank.widths.layers, request_tokens)
    assert demand.held_requests is not None
    return min(demand.live_requests, demand.held_requests)


if __name__ == "__main__":
    main()

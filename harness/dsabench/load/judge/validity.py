"""Why a run measures nothing: the client was late, the server restarted, or too many requests failed.

Imports no pydantic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.errors import TrialFault
from dsabench.load.client.monitor import WorkerVitals
from dsabench.load.judge.metrics import MetricValue
from dsabench.model.sample import RequestSample

if TYPE_CHECKING:
    from pydantic import JsonValue

    Info = Mapping[str, JsonValue]
    from dsabench.model.record import FaultKind, Stage


CPU_SHARE_MAX = 0.95
"""Of one core, over a run of at least `CPU_WINDOW_S`: the event loop had no idle time left, so frames queued."""
CPU_WINDOW_S = 1.0
LAG_P90_MS_MAX = 50.0
"""A tenth of all times stamped later than this. Preemption on a busy two-core machine stays below: it delays single
wake-ups by a few scheduler slices, and a CPU quota's pauses (up to 100 ms) hit fewer than one in ten."""
SEND_LAG_P90_MS_MAX = 50.0
SEND_LAG_SHARE_MAX = 0.1
"""A tenth of the requests left later than this after they could, and later than this share of a request's time: a
burst of a thousand requests takes longer to write, and that is nothing beside answers of seconds."""
GC_SHARE_MAX = 0.1
"""Of the run: the collector stood still the loop for longer than any preemption does."""
GC_PAUSE_MS_MAX = 500.0
"""One pause: every frame that came meanwhile has a wrong stamp, and a p99 over few seconds is made of them."""
BACKLOG_MS_MAX = 50.0
"""Mean time that bytes lay in a socket before they were read and stamped."""
BACKLOG_SAMPLES_MIN = 100
LAG_P99_MS_WARN = 20.0
"""From here on a p99 of the client's own lag is worth a warning beside the numbers."""
LATE_SHARE_MAX = 0.2
"""How late what came was stamped on average, as a share of the median TTFT: beyond it TTFT is the client's as much as the
server's. TPOT is a difference of two stamps and hardly moves, but where the lateness is longer than the time between
tokens, the gaps (ITL) are the client's own."""
LATE_SHARE_WARN = 0.05
LATE_MS_MIN = 5.0
STARVED_LATE_MS_MIN = 3.0
"""Less than this is what preemption costs on a busy machine; the smaller one for a client that has to wait for a core."""
LATE_MS_WARN_MIN = 0.5
LATE_LOOKS_MIN = 40
"""Points of the grid, a second of them: a mean of fewer is chance."""
STARVED_SHARE = 0.1
"""Of the time in which the client's thread could have run, but had no core."""
CORE_WAIT_SHARE_MAX = 0.2
"""With 800 streams beside four busy programs on two cores it was 0.29 to 0.57, and the mean TTFT 33 to 84 % too long; with
200 streams it was 0.05 to 0.09 and TTFT 1 to 15 % (tests/load_benchmark/busy_cores.py)."""
TAIL_WAIT_SHARE = 0.02
"""So much delays what a p99 looks at. With 200 streams beside four busy programs on two cores it was 0.02 to 0.17, and the p99
of the gaps 24 to 28 ms where the server kept 20 ms (results/load-generator/busy-cores-200.json)."""
TIMER_MS = 0.5
"""libuv's timers have whole milliseconds, so that half of one is no lateness."""


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """The load generator about itself, over the measured window. Of several workers each figure is the worst one's."""

    cpu_s: float
    """CPU of all workers' processes while the clock ran; parsing comes after it."""
    cpu_share: float
    """The event loop's, as a share of one core."""
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    """How late the event loop ran a timer, at any moment of the window."""
    send_lag_max_ms: float
    saturated: str | None = None
    """Why the numbers cannot be trusted and what to change; None when they can."""
    gc_pauses: int = 0
    """Of the garbage collector."""
    gc_max_ms: float = 0.0
    """The longest of them."""
    backlog_ms: float | None = None
    """Mean time that bytes lay in a socket before they were read. By Little's law the share of looks that found bytes
    waiting × the mean time between a connection's reads; None without looks."""
    workers: int = 1
    late_ms: float = 0.0
    """How late what came was stamped, on average: the loop's lag or the time in the socket, whichever is more."""
    core_wait_share: float | None = None
    """Of the time: the loop's thread could have run and had no core. None where the kernel does not tell."""
    doubt: str | None = None
    """Why the numbers are a little of the client's own making; None where they are not."""


class TypicalTimes(NamedTuple):
    """Medians over the answers, seconds; None where there are none."""

    request_s: float | None = None
    first_token_s: float | None = None
    per_token_s: float | None = None


def typical_times(samples: Sequence[RequestSample]) -> TypicalTimes:
    """Of at most a thousand or two of the answers."""
    ended = [sample for sample in samples[:: max(len(samples) // 1000, 1)] if sample.error is None]
    first_s = [sample.frames.at_s.item(0) - sample.sent_s for sample in ended]
    per_token_s = [
        (sample.done_s - sample.frames.at_s.item(0)) / later
        for sample in ended
        if (later := sample.output_tokens - sample.frames.tokens.item(0)) > 0
    ]
    request_s = [sample.done_s - sample.sent_s for sample in ended]
    return TypicalTimes(*(float(np.percentile(one, 50)) if one else None for one in (request_s, first_s, per_token_s)))


def judge_client(
    vitals: Sequence[WorkerVitals], reads: Sequence[int], late_s: npt.NDArray[np.float64], typical: TypicalTimes
) -> ClientHealth:
    """Sum up all workers, together with how late each request left and what the answers typically took.

    `reads` are each worker's reads.
    """
    send_p90, send_worst = np.percentile(late_s if len(late_s) else [0.0], [90, 100]) * 1e3
    send_late_ms = float(send_p90) if send_p90 > SEND_LAG_SHARE_MAX * (typical.request_s or 0.0) * 1e3 else 0.0
    lags = np.array([np.percentile(own.lags_s or [0.0], [50, 90, 99, 100]) * 1e3 for own in vitals])
    shares = [own.loop_cpu_s / own.wall_s for own in vitals]
    backlogs = [_backlog_ms(own, count) for own, count in zip(vitals, reads, strict=True)]
    late = [_late_ms(own, ms) for own, ms in zip(vitals, backlogs, strict=True)]
    waits = [own.core_wait_s / own.wall_s for own in vitals if own.core_wait_s is not None]
    reasons = [
        _saturation(own, share, float(lag[1]), ms)
        for own, share, lag, ms in zip(vitals, shares, lags, backlogs, strict=True)
    ]
    wait_share = max(waits, default=None)
    void, doubt = _lateness(max(late), wait_share, max(len(own.lags_s) for own in vitals), typical)
    p50, _, p99, worst = lags.max(axis=0)
    return ClientHealth(
        cpu_s=sum(own.cpu_s for own in vitals),
        cpu_share=max(shares),
        lag_p50_ms=float(p50),
        lag_p99_ms=float(p99),
        lag_max_ms=float(worst),
        send_lag_max_ms=float(send_worst),
        saturated=next((reason for reason in (*reasons, _late(send_late_ms), void) if reason is not None), None),
        gc_pauses=max(own.gc_pauses for own in vitals),
        gc_max_ms=max(own.gc_max_s for own in vitals) * 1e3,
        backlog_ms=max((ms for ms in backlogs if ms is not None), default=None),
        workers=len(vitals),
        late_ms=max(late),
        core_wait_share=wait_share,
        doubt=doubt,
    )


def client_warnings(client: ClientHealth) -> Iterator[str]:
    """What a reader must know of it beside the numbers."""
    if client.doubt is not None:
        yield f"the load generator was late: {client.doubt}"
    elif client.lag_p99_ms > LAG_P99_MS_WARN:
        yield f"the load generator was up to {client.lag_p99_ms:.0f} ms late (p99 of its event loop's lag)"


def _late_ms(own: WorkerVitals, backlog_ms: float | None) -> float:
    lag_ms = sum(own.lags_s) / max(len(own.lags_s), 1) * 1e3
    return max(lag_ms - TIMER_MS, backlog_ms or 0.0, 0.0)


def _lateness(
    late_ms: float, wait_share: float | None, looks: int, typical: TypicalTimes
) -> tuple[str | None, str | None]:
    """Why the numbers are void, and why they are doubtful: what came was stamped late for what was measured."""
    starved = wait_share is not None and wait_share > STARVED_SHARE
    many = looks >= LATE_LOOKS_MIN
    judged = many and late_ms >= (STARVED_LATE_MS_MIN if starved else LATE_MS_MIN)
    times = (
        (typical.first_token_s, "to the first token", LATE_SHARE_MAX, judged),
        (typical.per_token_s, "between tokens", 1.0, judged and starved),
    )
    waited = "" if wait_share is None else f" and waited for a core {wait_share:.0%} of the time"
    void = doubt = None
    if wait_share is not None and (starved or (many and wait_share > TAIL_WAIT_SHARE)):
        short = f"it waited for a core {wait_share:.0%} of the time"
        doubt = f"{short}, so about as many of the latencies, the slowest, may be its own"
        if many and wait_share > CORE_WAIT_SHARE_MAX:
            void = f"{short}; {_ADVICE}"
    for seconds, what, share_max, is_judged in times:
        if not seconds:
            continue
        share = late_ms / (seconds * 1e3)
        told = f"its event loop was {late_ms:.1f} ms late on average{waited}, which is {share:.0%} of {seconds * 1e3:.3g} ms {what}"
        if is_judged and share > share_max:
            void = f"{told}; {_ADVICE}"
            break
        if share > LATE_SHARE_WARN and late_ms >= LATE_MS_WARN_MIN:
            doubt = told
    return void, doubt


def _backlog_ms(own: WorkerVitals, reads: int) -> float | None:
    if own.backlog_samples < BACKLOG_SAMPLES_MIN or not reads:
        return None
    between_reads_s = own.wall_s * own.busy_connections / reads
    return own.backlog_hits / own.backlog_samples * between_reads_s * 1e3


_ADVICE = "lower max_concurrency or request_rate, or give the client a core of its own"


def _saturation(own: WorkerVitals, cpu_share: float, lag_p90_ms: float, backlog_ms: float | None) -> str | None:
    if cpu_share > CPU_SHARE_MAX and own.wall_s >= CPU_WINDOW_S:
        return f"the load generator used {cpu_share:.0%} of a core; {_ADVICE}"
    if lag_p90_ms > LAG_P90_MS_MAX:
        return f"a tenth of its event loop's wake-ups were over {lag_p90_ms:.0f} ms late; {_ADVICE}"
    if backlog_ms is not None and backlog_ms > BACKLOG_MS_MAX:
        return f"bytes lay {backlog_ms:.0f} ms in its sockets before they were read; {_ADVICE}"
    if own.gc_s > GC_SHARE_MAX * own.wall_s and own.wall_s >= CPU_WINDOW_S:
        return f"its garbage collector ran {own.gc_s / own.wall_s:.0%} of the time; run it in a process of its own"
    if own.gc_max_s * 1e3 > GC_PAUSE_MS_MAX:
        return f"its garbage collector stood it still for {own.gc_max_s * 1e3:.0f} ms; run it in a process of its own"
    return None


def _late(send_lag_p90_ms: float) -> str | None:
    if send_lag_p90_ms > SEND_LAG_P90_MS_MAX:
        return f"a tenth of the requests left over {send_lag_p90_ms:.0f} ms late; {_ADVICE}"
    return None


OF_ONE_PROCESS = ("startup_time", "start_time", "pid", "random_seed", "version", "model_path", "served_model_name")
"""Entries of /server_info that a process keeps for life. sglang draws `random_seed` at each start and measures how long
each took (`startup_time`), so that a restart with the same flags shows too."""
_COUNTERS = ("requests", "generated_tokens", "prompt_tokens", "decode_steps")
_GROWING = "uptime_s"


@dataclass(frozen=True, slots=True)
class ServerInfoPair:
    """`/server_info` around a run."""

    before: Info
    after: Info

    @property
    def restarted(self) -> str | None:
        """What shows that another process answers now; None where nothing does."""
        for name in OF_ONE_PROCESS:
            if name in self.before and name in self.after and self.before[name] != self.after[name]:
                return f"{name} is another than before the run"
        for name, (before, after) in _counters(self.before, self.after).items():
            if after < before:
                return f"its counter {name} fell from {before:g} to {after:g}"
        return None

    @property
    def hot_buffer(self) -> dict[str, MetricValue]:
        """Hit rate of HiSparse's buffers in this run, and what smaller buffers would have had; empty where the server does not tell."""
        found: dict[str, MetricValue] = {}
        asked = _grown(self.before, self.after, "hot_buffer")
        hits, misses = asked.get("hits", 0), asked.get("misses", 0)
        if hits + misses:
            found["hot_buffer_hit_rate"] = MetricValue(hits / (hits + misses), hits + misses)
        of_rows = _grown(self.before, self.after, "hot_buffer_rows")
        looked_up, had = sum(of_rows.values()), 0
        for rows, count in sorted((int(rows), count) for rows, count in of_rows.items() if rows.isdecimal()):
            if rows and looked_up:
                had += count
                found[f"hot_buffer_hit_rate.of_{rows}"] = MetricValue(had / looked_up, looked_up)
        return found

    @property
    def lifetime_accept_length(self) -> MetricValue | None:
        """Mean of `avg_spec_accept_length` over the data-parallel ranks: since the server's start, not of this run."""
        values = [
            float(value)
            for state in _states(self.after)
            if isinstance(value := state.get("avg_spec_accept_length"), int | float) and value > 0
        ]
        return MetricValue(sum(values) / len(values), len(values)) if values else None


def _states(info: Info) -> list[Mapping[str, JsonValue]]:
    """One per data-parallel rank. A PD router lists its servers' infos; tokens are decoded by the decode servers."""
    servers: Sequence[JsonValue] = decode if isinstance(decode := info.get("decode"), list) else [dict(info)]
    lists = [server.get("internal_states") for server in servers if isinstance(server, dict)]
    return [state for states in lists if isinstance(states, list) for state in states if isinstance(state, dict)]


def _reference_counters(info: Info) -> Mapping[str, JsonValue]:
    """What the reference runtime counts; empty of another server."""
    reference = info.get("reference")
    counters = reference.get("counters") if isinstance(reference, dict) else None
    return counters if isinstance(counters, dict) else {}


def _grown(before: Info, after: Info, name: str) -> dict[str, int]:
    """By how much each number of one of these counters grew."""
    named = (_reference_counters(info).get(name) for info in (before, after))
    old, new = ({k: v for k, v in one.items() if isinstance(v, int)} if isinstance(one, dict) else {} for one in named)
    return {key: value - old.get(key, 0) for key, value in new.items()}


def _counters(before: Info, after: Info) -> dict[str, tuple[float, float]]:
    """Numbers that only grow while one process lives, where both views have them."""
    found: dict[str, tuple[float, float]] = {}
    of_reference = _reference_counters(before), _reference_counters(after), _COUNTERS
    for old, new, names in ((before, after, (_GROWING,)), of_reference):
        for name in names:
            was, now = old.get(name), new.get(name)
            if isinstance(was, int | float) and isinstance(now, int | float):
                found[name] = (float(was), float(now))
    return found


FAILED_SHARE_MAX = 0.1
"""Beyond one failed request in ten the others are no sample of the load that was asked: the fastest survive. Nor are the
other answers of an eval a score: what failed is no random part of the questions."""

_FAULTS: dict[str, FaultKind] = {"timeout": "request_timeout", "connect": "unreachable", "garbage": "bad_response"}
"""Class of a request's error → kind of the fault; all others are `request_errors`."""


def too_many_failed(failed: int, total: int, share_max: float = FAILED_SHARE_MAX) -> bool:
    """Whether the rest measures nothing."""
    return failed > share_max * total


class RequestFailures(NamedTuple):
    """How many requests failed, and with what most of them."""

    failed: int
    total: int
    commonest: str

    @property
    def fault(self) -> FaultKind:
        """The kind of the commonest error."""
        return _FAULTS.get(self.commonest.partition(":")[0], "request_errors")

    def told(self, requests: str = "requests") -> str:
        """One line; `requests` says which."""
        count = f"all {self.total}" if self.failed == self.total else f"{self.failed} of {self.total}"
        return f"{count} {requests} failed, most with {self.commonest}"


def failures_of(samples: Sequence[RequestSample]) -> RequestFailures | None:
    """None where every request ended well."""
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    return RequestFailures(errors.total(), len(samples), errors.most_common(1)[0][0]) if errors else None


def refuse_failures(samples: Sequence[RequestSample], *, stage: Stage, share_max: float) -> None:
    """Let few failures pass.

    Raises:
        TrialFault: more than `share_max` of the requests failed; carries the commonest error.

    """
    failures = failures_of(samples)
    if failures is not None and too_many_failed(failures.failed, failures.total, share_max):
        raise TrialFault(failures.fault, failures.told(), stage=stage)

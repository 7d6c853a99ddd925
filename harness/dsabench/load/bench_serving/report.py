"""What one run of `dsabench bench` has to say, before it is printed and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dsabench.load.bench_serving.answers import Answers
from dsabench.load.bench_serving.cache import CacheReport
from dsabench.load.bench_serving.figures import Figures, Goodput
from dsabench.load.bench_serving.steady import Steady, Tail
from dsabench.load.judge.steady_state import NoSteadyState
from dsabench.load.read.json_stream import ReplyText
from dsabench.model.sample import RequestSample


class Order(NamedTuple):
    """The arguments that bench_serving repeats in its record."""

    backend: str
    dataset_name: str
    request_rate: float
    """Requests per second; infinite for a closed loop."""
    max_concurrency: int | None
    tag: str | None = None
    sharegpt_output_len: int | None = None
    random_input_len: int = 1024
    random_output_len: int = 1024
    random_range_ratio: float = 0.0
    from_trace: bool = False
    """`--use-trace-timestamps`."""

    @property
    def shown_rate(self) -> float | str:
        """The rate as it is printed and written."""
        return "trace" if self.from_trace else self.request_rate


class Report(NamedTuple):
    """One run: the samples and what was computed from them."""

    order: Order
    duration_s: float
    samples: Sequence[RequestSample]
    spoken: Sequence[ReplyText | None]
    answers: Answers
    figures: Figures
    goodput: Goodput | None = None
    cache: CacheReport | None = None
    accept_length: float | None = None
    """What the server tells of its whole life (`avg_spec_accept_length`), as in bench_serving."""
    server_info: object = None
    from_schedule: Mapping[str, Tail] = MappingProxyType({})
    steady: Steady | NoSteadyState | None = None
    """None where it was not looked for."""

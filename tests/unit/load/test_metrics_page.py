"""docs/metrics.md names every metric that a load test gives."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dsabench.load.judge.summary import summarise
from dsabench.load.judge.validity import ServerInfoPair
from dsabench.load.read.json_stream import StreamReply
from dsabench.model.metrics import METRICS
from dsabench.model.workload import Slo
from factories import make_workload
from unit.load.made import closed_loop, run_of

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
EVERYTHING = make_workload(slo={"ttft_ms": 200})


def families(names: object) -> set[str]:
    """Names as the page writes them: without statistic, and `…` or a capital for what varies."""
    statistics = r"\.(mean|min|max|p50|p90|p95|p99)$"
    return {re.sub(statistics, "", re.sub(r"^steady\.", "", str(name))) for name in names}  # type: ignore[attr-defined]


def test_every_metric_is_on_the_page() -> None:
    told = [replace(one, accept_length=2.0, cached_tokens=0) for one in closed_loop(4, 10)]
    metrics = set(summarise(run_of(told, 10.75), EVERYTHING).metrics)
    info = {"internal_states": [{"avg_spec_accept_length": 2.0}]}
    metrics |= set(summarise(run_of(closed_loop(4, 10), 10.75), EVERYTHING, ServerInfoPair(info, info)).metrics)
    metrics |= set(METRICS)
    short = {"input_throughput_tok_s": "input_…", "output_throughput_tok_s": "output_…"}
    missing = [name for name in families(metrics) if short.get(name, name.replace(".ttft_ms", ".LATENCY")) not in PAGE]
    assert missing == []


def test_limits_and_error_classes_are_on_the_page() -> None:
    assert [name for name in Slo.model_fields if f"`{name}`" not in PAGE] == []
    classes = re.findall(r"- `(\w+): …`", StreamReply.__doc__ or "")
    assert len(classes) == 5
    assert [name for name in classes if f"`{name}`" not in PAGE] == []

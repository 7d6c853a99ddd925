"""Ours against what bench_serving 0.5.23 makes of the same recorded bytes (tests/wheels/make_bench_figures.py)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsabench.load.bench_serving.metrics import answer_columns, as_bench_serving, compute_goodput, compute_metrics
from dsabench.load.bench_serving.output import metric_keys, record_of
from dsabench.load.bench_serving.report import (
    ENDPOINTS,
    BenchData,
    BenchOptions,
    BenchReport,
    ReportOptions,
    report_run,
)
from dsabench.load.draw.tokenizers import load_tokenizer
from dsabench.load.read.json_stream import ReplyText
from dsabench.load.read.replies import READERS
from dsabench.model.sample import Frames, RequestSample

GOLDEN = Path(__file__).parents[3] / "golden" / "bench_serving"
FIGURES = json.loads((GOLDEN / "figures.json").read_text())
SLOS = {"ttft": 60.0, "tpot": 20.0, "e2el": 400.0}
pytest.importorskip("tokenizers")


def read(index: int, reply: dict[str, Any]) -> tuple[RequestSample, ReplyText]:
    reads = [(at_s, text.encode("latin-1")) for at_s, text in reply["reads"]]
    answer = READERS[reply["endpoint"]](reads, 0.0, keep_text=True)
    sample = RequestSample(
        index=index,
        scheduled_s=reply["sent_s"],
        sent_s=reply["sent_s"],
        done_s=reads[-1][0] if reads else reply["sent_s"],
        input_len=reply["prompt_len"],
        output_len_asked=reply["output_len"],
        frames=answer.frames,
        input_tokens=answer.input_tokens,
        cached_tokens=answer.cached_tokens,
        error=f"http {reply['status']}: busy" if "status" in reply else answer.error,
    )
    return sample, answer.spoken or ReplyText()


def report_for(golden: dict[str, Any]) -> BenchReport:
    endpoint = ENDPOINTS[golden["backend"]]
    replies = [one for one in json.loads((GOLDEN / "recording.json").read_text()) if one["endpoint"] == endpoint]
    samples, spoken = zip(*map(read, range(len(replies)), replies), strict=True)
    info = {"internal_states": [{"avg_spec_accept_length": golden["accept_length"]}]}
    count = load_tokenizer(str(GOLDEN / "data" / "tokenizer")).count
    return report_run(
        BenchOptions(golden["backend"], "random-ids", float("inf"), 3),
        BenchData(samples, spoken, 1.75, info),
        ReportOptions(count, goodput_slos_ms=SLOS, cache_report=True),
    )


@pytest.fixture(params=FIGURES, ids=lambda golden: f"{golden['backend']}-{golden['accept_length']}")
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def test_the_record_agrees_to_a_millionth(golden: dict[str, Any]) -> None:
    report = report_for(golden)
    counted = report.as_bench_serving or report.metrics
    record = {**metric_keys(counted, report.accept_length), "max_itl_ms": counted.itl.max}
    names = {"total_input": "total_input_tokens", "total_output": "total_output_tokens"}
    names |= {"total_input_text": "total_input_text_tokens", "total_input_vision": "total_input_vision_tokens"}
    names["total_output_retokenized"] = "total_output_tokens_retokenized"
    theirs = golden["metrics"]
    unwritten = {name for name in theirs if "throughput_retokenized" in name}
    for name in theirs.keys() - unwritten:
        assert (record[names.get(name, name)] or 0.0) == pytest.approx(theirs[name], rel=1e-9, abs=1e-9), name
    assert record["accept_length"] == golden["accept_length"]


def test_other_counts_stand_beside_and_what_was_not_seen_is_none(golden: dict[str, Any]) -> None:
    """The recording has answers without usage and first events of several tokens: our counts are those that came."""
    report = report_for(golden)
    record = record_of(report, details=True)
    came = [sample.output_tokens if sample.error is None else 0 for sample in report.samples]
    assert record["output_lens"] == came
    assert record["total_output_tokens"] == sum(came)
    beside = record["bench_serving"]
    assert report.as_bench_serving is not None
    assert beside.keys() <= golden["metrics"].keys() | {"total_output_tokens"}
    assert {name: beside[name] for name in beside.keys() & golden["metrics"].keys()} == pytest.approx(
        {name: golden["metrics"][name] for name in beside.keys() & golden["metrics"].keys()}
    )


def test_the_details_agree(golden: dict[str, Any]) -> None:
    report = report_for(golden)
    record = record_of(report, details=True)
    for name in ("input_lens", "generated_texts"):
        assert record[name] == golden[name], name
    assert report.answers.asked_len.tolist() == golden["output_lens"]
    assert record["ttfts"] == pytest.approx(golden["ttfts"], abs=1e-9)
    assert [bool(error) for error in record["errors"]] == [not ok for ok in golden["ok"]]
    for mine, theirs in zip(record["itls"], golden["itls"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)


def test_goodput_agrees(golden: dict[str, Any]) -> None:
    report = report_for(golden)
    goodput = compute_goodput(as_bench_serving(report.answers), SLOS, report.duration_s)
    assert goodput._asdict() == golden["goodput"]


def test_the_recording_holds_what_is_hard() -> None:
    native = next(golden for golden in FIGURES if golden["backend"] == "sglang")
    assert any(len(set(itls)) < len(itls) for itls in native["itls"])  # frames of several tokens
    assert any(len(itls) < length - 1 for itls, length in zip(native["itls"], native["output_lens"], strict=True))
    assert {golden["ok"].count(False) for golden in FIGURES} == {1}
    assert len({golden["metrics"]["mean_itl_ms"] for golden in FIGURES if golden["backend"] == "sglang-oai"}) == 2


@pytest.mark.timing
def test_columns_cost_little_for_600_000_frames() -> None:
    rng = np.random.default_rng(1)
    samples = []
    for index in range(9_375):
        at_s = index / 100 + np.cumsum(rng.exponential(0.02, 64))
        samples.append(
            RequestSample(index, 0.0, index / 100, float(at_s[-1]), 32, 64, Frames(at_s, np.ones(64, np.int32)))
        )
    lens = np.full(len(samples), 32, np.int64)
    times = []
    for _ in range(3):
        began_s = time.process_time()
        answers = answer_columns(samples, [None] * len(samples), "generate")
        figures = compute_metrics(answers, 100.0, input_lens=lens, retokenized=lens)
        times.append(time.process_time() - began_s)
    assert figures.total_output == 600_000
    assert min(times) < 0.25  # 0.1 s on an idle machine
    print(times)

"""Writes tests/golden/bench_serving/figures.json: what bench_serving 0.5.23 computes from `recording.json`.

    PYTHON tests/wheels/make_bench_figures.py FOLDER_WITH_UNPACKED_WHEEL

PYTHON and the folder: see `bench_wheel.py`. The wheel's own request functions read the recorded bytes, line by line,
under a clock that stands at each line's recorded arrival; its own formulas do the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import msgspec
from bench_wheel import import_serving

GOLDEN = Path(__file__).parents[1] / "golden" / "bench_serving"
BACKENDS = {"generate": "sglang", "completions": "sglang-oai", "chat": "sglang-oai-chat"}
PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}
DURATION_S = 1.75
SLOS = {"ttft": 60.0, "tpot": 20.0, "e2el": 400.0}
ARGS = argparse.Namespace(
    temperature=0.0, top_p=1.0, disable_ignore_eos=False, disable_stream=False, return_logprob=False,
    return_routed_experts=False, logprob_start_len=-1, top_logprobs_num=0, token_ids_logprob=None, header=None,
    cache_report=True, print_requests=False,
)  # fmt: skip


class Clock:
    now_s = 0.0


class Replay:
    """Stands where aiohttp's session and response stand."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply, self.status, self.reason = reply, reply.get("status", 200), "Service Unavailable"
        self.content = self.lines()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def post(self, **_: Any) -> Replay:
        return self

    async def text(self) -> str:
        return "busy"

    async def lines(self) -> AsyncIterator[bytes]:
        line = b""
        for at_s, text in self.reply["reads"]:
            Clock.now_s = at_s
            *whole, rest = text.encode("latin-1").split(b"\n")
            for part in whole:
                yield line + part + b"\n"
                line = b""
            line += rest


def main(folder: Path) -> None:
    serving = import_serving(folder)
    serving.args = ARGS
    serving.time.perf_counter = lambda: Clock.now_s
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "data" / "tokenizer")
    recording = json.loads((GOLDEN / "recording.json").read_text())
    figures = []
    for endpoint, backend in BACKENDS.items():
        replies = [reply for reply in recording if reply["endpoint"] == endpoint]
        outputs = [asyncio.run(replay(serving, backend, endpoint, reply)) for reply in replies]
        figures += [figures_of(serving, backend, replies, outputs, tokenizer, length) for length in (None, 2.5)]
    lines = ",\n".join(json.dumps(one) for one in figures)
    (GOLDEN / "figures.json").write_text(f"[\n{lines}\n]\n")


async def replay(serving: Any, backend: str, endpoint: str, reply: dict[str, Any]) -> Any:
    serving._create_bench_client_session = lambda: Replay(reply)
    Clock.now_s = reply["sent_s"]
    asked = serving.RequestFuncInput(
        prompt="p", api_url=f"http://h{PATHS[endpoint]}", prompt_len=reply["prompt_len"],
        output_len=reply["output_len"], model="m", lora_name="", image_data=None, extra_request_body={},
    )  # fmt: skip
    return await serving.ASYNC_REQUEST_FUNCS[backend](asked)


def figures_of(
    serving: Any, backend: str, replies: list[dict[str, Any]], outputs: list[Any], tokenizer: Any, accept: float | None
) -> dict[str, Any]:
    from sglang.benchmark.datasets import DatasetRow

    rows = [DatasetRow(prompt="p", prompt_len=r["prompt_len"], output_len=r["output_len"]) for r in replies]
    metrics, output_lens = serving.calculate_metrics(
        input_requests=rows,
        outputs=outputs,
        dur_s=DURATION_S,
        tokenizer=tokenizer,
        backend=backend,
        accept_length=accept,
    )
    goodput = serving.calculate_goodput(outputs=outputs, goodput_slos=dict(SLOS), dur_s=DURATION_S)
    return {
        "backend": backend,
        "accept_length": accept,
        "metrics": asdict(metrics),
        "goodput": msgspec.structs.asdict(goodput),
        "input_lens": [output.prompt_len for output in outputs],
        "output_lens": output_lens,
        "ttfts": [output.ttft for output in outputs],
        "itls": [output.itl for output in outputs],
        "generated_texts": [output.generated_text for output in outputs],
        "ok": [output.success for output in outputs],
        "steady_state": steady_state(outputs, tokenizer, rows),
    }


def steady_state(outputs: list[Any], tokenizer: Any, rows: list[Any]) -> dict[str, Any]:
    from sglang.benchmark.steady_state import calculate_steady_state_metrics

    return asdict(calculate_steady_state_metrics(outputs, tokenizer, 0.7, rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

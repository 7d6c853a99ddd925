"""Ours against what bench_serving 0.5.23 draws for the same command lines (tests/wheels/make_bench_goldens.py)."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsabench.cli.bench_choices import selection_for
from dsabench.cli.bench_flags import parse_flags
from dsabench.load.draw.as_bench_serving import SeededGenerators, draw_exact
from dsabench.load.draw.tokenizers import NoTokenizer, Tokenizer, load_tokenizer
from dsabench.load.schedule import exact_arrivals, recorded_arrivals
from dsabench.model.sample import Prompt

GOLDEN = Path(__file__).parents[2] / "golden" / "bench_serving"
DATA = GOLDEN / "data"
DRAWS = json.loads((GOLDEN / "draws.json").read_text())


def tokenizer_named(name: str) -> Tokenizer:
    if name.isdigit():
        return NoTokenizer(int(name))
    if name == "bytes":
        return load_tokenizer(name)
    pytest.importorskip("tokenizers")
    return load_tokenizer(str(DATA / name))


def as_golden(turns: list[Prompt], dataset: str) -> str:
    """A row of bench_serving's, which holds all turns of a conversation."""
    prompt = turns[0]
    content = prompt.text if prompt.input_ids is None else prompt.input_ids
    said = prompt.messages if content is None else content
    if dataset == "agentic-trace":
        said = [turn.messages for turn in turns]
    elif len(turns) > 1:
        said = [turn.messages[0]["content"] for turn in turns if turn.messages]
    return json.dumps([said, prompt.input_len, prompt.output_len, prompt.extra or {}], sort_keys=True)


@pytest.fixture(params=DRAWS, ids=lambda golden: f"{golden['case']}-{golden['tokenizer']}")
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def test_draws_the_same_prompts_and_gaps(golden: dict[str, Any]) -> None:
    words = [str(DATA / word) if (DATA / word).is_file() else word for word in golden["flags"].split()]
    args = parse_flags([*words, "--draw", "exact"])
    generators = SeededGenerators.of(args.seed)
    prompts = draw_exact(selection_for(args), tokenizer_named(golden["tokenizer"]), generators)
    conversations: list[list[Prompt]] = []
    for prompt in prompts:
        conversations += [] if prompt.continues else [[]]
        conversations[-1].append(prompt)
    rows = [as_golden(turns, args.dataset_name) for turns in conversations]
    prompts = [turns[0] for turns in conversations]
    assert rows[0][:160] == golden["first"]
    assert len(rows) == golden["count"]
    assert sum(prompt.input_len for prompt in prompts) == golden["input_tokens"]
    assert sum(prompt.output_len for prompt in prompts) == golden["output_tokens"]
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == golden["sha256"]
    if args.dataset_name == "mooncake":
        departures = recorded_arrivals(prompts)
        waits = [gap for gap in np.diff(departures.due_s).tolist() if gap > 0]
    else:
        departures = exact_arrivals(len(prompts), args.request_rate, generators.legacy)
        ends = [*departures.due_s.tolist(), departures.end_s]
        waits = [] if math.isinf(args.request_rate) else np.diff(ends).tolist()
    assert waits[:3] + waits[-1:] == pytest.approx(golden["waits_s"], rel=1e-9)
    assert departures.end_s == pytest.approx(golden["waited_s"], rel=1e-9)


def test_every_dataset_has_a_golden() -> None:
    drawn = {golden["flags"].split()[1] for golden in DRAWS}
    assert drawn == {
        *("sharegpt", "custom", "openai", "random", "random-ids"),
        *("generated-shared-prefix", "agentic-trace", "mooncake"),
    }

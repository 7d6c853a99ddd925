"""What holds for every dataset that a workload can name."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from dsabench.load.draw.prompts import DATASETS, draw_prompts
from dsabench.load.requests import LoadTarget
from dsabench.model.sample import Prompt
from dsabench.model.workload import Workload

TARGET = LoadTarget("http://127.0.0.1:1", "tiny", vocab_size=256, tokenizer="bytes")


@pytest.fixture(scope="module")
def sharegpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 conversations, with words of one to four bytes a character."""
    words = random.Random(3)
    texts = ["".join(words.choices("abc é€🙂", k=words.randint(1, 200))) + str(i) for i in range(120)]
    path = tmp_path_factory.mktemp("data") / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": [{"value": text}, {"value": "yes"}]} for text in texts]))
    return path


@pytest.fixture(params=DATASETS)
def workload(request: pytest.FixtureRequest, sharegpt: Path) -> Workload:
    return Workload(
        name="w", dataset=request.param, input_len=96, output_len=16, num_prompts=100, warmup_requests=5,
        dataset_path=str(sharegpt),
    )  # fmt: skip


def content(prompt: Prompt) -> tuple[int, ...]:
    """Token ids as the server sees them."""
    return prompt.input_ids if prompt.text is None else tuple(prompt.text.encode())


def test_gives_the_requests_asked_for(workload: Workload) -> None:
    prompts = draw_prompts(TARGET, workload)
    assert (len(prompts.measured), len(prompts.warm_up)) == (100, 5)
    for prompt in (*prompts.measured, *prompts.warm_up):
        assert (prompt.input_ids is None) != (prompt.text is None)
        assert len(content(prompt)) == prompt.input_len == 96
        assert prompt.output_len == 16
        assert all(0 <= token < 256 for token in content(prompt))


def test_no_two_prompts_are_equal_nor_any_warm_up(workload: Workload) -> None:
    prompts = draw_prompts(TARGET, workload)
    everything = (*prompts.measured, *prompts.warm_up)
    assert len(set(map(content, everything))) == len(everything)


def test_the_seed_decides(workload: Workload) -> None:
    once, again = (draw_prompts(TARGET, workload) for _ in range(2))
    assert once[:2] == again[:2]
    np.testing.assert_array_equal(once.due_s, again.due_s)
    other = workload.model_copy(update={"seed": 2})
    assert draw_prompts(TARGET, workload).measured != draw_prompts(TARGET, other).measured


def test_lengths_stay_in_the_range(workload: Workload) -> None:
    prompts = draw_prompts(TARGET, workload.model_copy(update={"range_ratio": 0.25})).measured
    lengths = np.array([(prompt.input_len, prompt.output_len) for prompt in prompts])
    assert lengths.min(axis=0).tolist() >= [24, 4]
    assert lengths.max(axis=0).tolist() <= [96, 16]
    assert len(set(lengths[:, 0].tolist())) > 20
    assert [len(content(prompt)) for prompt in prompts] == lengths[:, 0].tolist()

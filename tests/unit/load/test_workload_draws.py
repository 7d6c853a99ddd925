"""Workloads of every dataset that bench_serving has: the same prompts as its command line gives."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsabench.errors import InputError
from dsabench.load.draw.prompts import draw_prompts, draw_rehearsal
from dsabench.load.requests import LoadTarget
from dsabench.model.sample import Prompt
from dsabench.model.workload import Workload
from dsabench.reference.server.openai_api import ChatBody, chat_prompt

pytest.importorskip("tokenizers")
GOLDEN = Path(__file__).parents[2] / "golden" / "bench_serving"
DATA = GOLDEN / "data"
DRAWS = {(one["case"], one["tokenizer"]): one for one in json.loads((GOLDEN / "draws.json").read_text())}
BYTES = LoadTarget("http://h:1", "tiny", vocab_size=256, tokenizer="bytes")
PREFIX = {"groups": 3, "prompts_per_group": 4, "system_prompt_len": 20, "question_len": 8, "output_len": 6}
WORKLOADS: dict[str, dict[str, Any]] = {
    "contract": {
        "dataset": "random-ids", "input_len": 32, "output_len": 64, "num_prompts": 200, "seed": 42, "draw": "exact"
    },
    "random": {
        "dataset": "random", "dataset_path": "conversations.json", "input_len": 90, "output_len": 30, "range_ratio": 0.0,
        "num_prompts": 30, "seed": 3, "request_rate": 10.0, "draw": "exact",
    },
    "sharegpt": {"dataset": "sharegpt", "dataset_path": "conversations.json", "num_prompts": 25, "seed": 42},
    "custom": {"dataset": "custom", "dataset_path": "custom.jsonl", "num_prompts": 12, "seed": 11, "request_rate": 2.0, "draw": "exact"},
    "prefix": {
        "dataset": "generated-shared-prefix", "num_prompts": 12, "seed": 42, "shared_prefix": PREFIX,
    },
    "mooncake": {
        "dataset": "mooncake", "dataset_path": "trace.jsonl", "num_prompts": 6, "seed": 42, "draw": "exact",
        "trace": {"rounds": 2, "slowdown": 0.5},
    },
}  # fmt: skip


def workload(**fields: Any) -> Workload:
    if "dataset_path" in fields:
        fields["dataset_path"] = str(DATA / fields["dataset_path"])
    return Workload.model_validate({"name": "w", **fields})


def as_golden(prompt: Prompt) -> str:
    content = prompt.text if prompt.input_ids is None else prompt.input_ids
    return json.dumps([content, prompt.input_len, prompt.output_len, prompt.extra or {}], sort_keys=True)


@pytest.mark.parametrize("case", WORKLOADS)
def test_a_workload_draws_what_the_command_line_draws(case: str) -> None:
    golden = DRAWS[case, "bytes"]
    drawn = draw_prompts(BYTES, workload(**WORKLOADS[case], warmup_requests=2))
    rows = [as_golden(prompt) for prompt in drawn.measured]
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == golden["sha256"]
    assert drawn.due_s.shape == (golden["count"],)
    assert [prompt.text for prompt in drawn.warm_up] == [drawn.measured[0].text] * 2
    gaps = np.diff(drawn.due_s)
    assert gaps[gaps > 0][:3].tolist() == pytest.approx(golden["waits_s"][:3])


def test_chat_requests_keep_what_they_bring() -> None:
    fields = {"dataset": "openai", "dataset_path": "openai.jsonl", "num_prompts": 4, "draw": "exact"}
    target = LoadTarget("http://h:1", "m", endpoint="chat", usage=False)
    prompts = draw_prompts(target, workload(**fields, tokenizer=str(DATA / "tokenizer"))).measured
    bodies = [json.loads(target.body(prompt)) for prompt in prompts]
    assert bodies[1]["temperature"] == 0.5
    assert [bodies[1]["model"], bodies[1]["max_completion_tokens"]] == ["m", 7]
    assert bodies[2]["tools"][0]["function"]["name"] == "look"
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataset": "sharegpt", "dataset_path": "conversations.json", "num_prompts": 500}, "has 7. prompts for it"),
        ({"dataset": "generated-shared-prefix", "num_prompts": 9}, "needs shared_prefix"),
        (
            {"dataset": "generated-shared-prefix", "num_prompts": 9, "shared_prefix": PREFIX},
            "3 groups of 4 prompts are",
        ),
        ({"dataset": "random-ids", "num_prompts": 9, "draw": "exact"}, "needs input_len and output_len"),
        ({"dataset": "random-ids", "num_prompts": 9}, "needs input_len and output_len"),
        (
            {
                "dataset": "sharegpt",
                "dataset_path": "conversations.json",
                "num_prompts": 4,
                "apply_chat_template": True,
            },
            "no chat template",
        ),
    ],
)
def test_what_is_missing_is_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        draw_prompts(BYTES, workload(**fields))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "content", "message"),
    [
        ("custom", b"\xff\xfe", "not UTF-8"),
        ("mooncake", b"\xff\xfe", "not UTF-8"),
        ("mooncake", b'{"timestamp": 1, "hash_ids": 3}', "hash_ids is a list"),
        ("openai", b'{"messages": "hello"}', "messages is no list of objects"),
        ("random", b"[1, 2]", "no conversation with two turns"),
    ],
)
def test_a_file_of_another_form_is_one_line(tmp_path: Path, dataset: str, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    fields = {"dataset": dataset, "dataset_path": str(tmp_path / "file"), "num_prompts": 2, "draw": "exact"}
    with pytest.raises(InputError, match=message) as caught:
        draw_prompts(BYTES, Workload.model_validate({"name": "w", "input_len": 3, "output_len": 4} | fields))
    assert "\n" not in str(caught.value)


def test_chats_of_the_reference_runtime_are_counted_as_it_counts_them() -> None:
    point = workload(dataset="openai", dataset_path="openai.jsonl", num_prompts=1)
    [prompt] = draw_prompts(BYTES, point).measured
    body = ChatBody.model_validate({"messages": prompt.messages and list(prompt.messages)})
    assert prompt.input_len == len(chat_prompt(body).encode())


def test_an_unknown_tokenizer_is_asked_for() -> None:
    with pytest.raises(InputError, match="give tokenizer"):
        draw_prompts(LoadTarget("http://h:1", "m"), workload(**WORKLOADS["sharegpt"]))


def test_a_rehearsal_has_prompts_of_its_own() -> None:
    point = workload(**WORKLOADS["contract"])
    measured = {prompt.input_ids for prompt in draw_prompts(BYTES, point).measured}
    rehearsed = draw_rehearsal(BYTES, workload(**WORKLOADS["sharegpt"]), 5, 0)
    assert [prompt.text is not None for prompt in rehearsed] == [True] * 5
    assert not measured & {prompt.input_ids for prompt in draw_rehearsal(BYTES, point, 4, 1)[:1]}

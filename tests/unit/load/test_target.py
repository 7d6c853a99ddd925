from __future__ import annotations

import json
from typing import Any

import pytest

from dsabench.errors import InputError
from dsabench.load.requests import EndpointName, LoadTarget
from dsabench.model.sample import Prompt

TEXT = Prompt(2, 5, text="hi")
IDS = Prompt(2, 5, input_ids=(1, 2))


@pytest.mark.parametrize(
    ("endpoint", "path", "prompt", "body"),
    [
        ("generate", "/generate", IDS, {"input_ids": [1, 2], "sampling_params": {"temperature": 0.0, "max_new_tokens": 5, "ignore_eos": True}, "lora_path": None, "return_logprob": False, "return_routed_experts": False, "logprob_start_len": -1}),
        ("completions", "/v1/completions", IDS, {"model": "m", "prompt": [1, 2], "best_of": 1, "max_tokens": 5, "temperature": 0.0, "ignore_eos": True}),
        ("completions", "/v1/completions", TEXT, {"model": "m", "prompt": "hi", "best_of": 1, "max_tokens": 5, "temperature": 0.0, "ignore_eos": True}),
        ("chat", "/v1/chat/completions", TEXT, {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 5, "temperature": 0.0, "ignore_eos": True}),
    ],
)  # fmt: skip
def test_bodies_are_those_of_bench_serving(
    endpoint: EndpointName, path: str, prompt: Prompt, body: dict[str, Any]
) -> None:
    target = LoadTarget("http://h:1/", "m", endpoint=endpoint, usage=False)
    assert target.url == f"http://h:1{path}"
    assert json.loads(target.body(prompt)) == {**body, "stream": True}


def test_counts_are_asked_for_in_every_event() -> None:
    body = json.loads(LoadTarget("http://h", "m", endpoint="chat").body(TEXT))
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["return_spec_tokens_details"] is body["return_cached_tokens_details"] is True
    assert "return_spec_tokens_details" not in json.loads(LoadTarget("http://h", "m").body(TEXT))


def test_extra_keys_win() -> None:
    target = LoadTarget(
        "http://h", "m", endpoint="chat", ignore_eos=False, extra_body={"temperature": 0.7, "top_p": 0.9}
    )
    body = json.loads(target.body(TEXT))
    assert (body["temperature"], body["top_p"], body["ignore_eos"]) == (0.7, 0.9, False)


def test_a_chat_of_token_ids_is_refused() -> None:
    with pytest.raises(InputError, match="the chat endpoint takes text"):
        LoadTarget("http://h", "m", endpoint="chat").body(IDS)

"""Where the load goes and what one request looks like there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from dsabench.errors import InputError
from dsabench.model.sample import Prompt

EndpointName = Literal["generate", "completions", "chat"]

PATHS: Mapping[EndpointName, str] = {
    "generate": "/generate",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
"""Endpoint → path. bench_serving calls them the backends sglang, sglang-oai and sglang-oai-chat."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the endpoint that is measured. The bodies are bench_serving's (sglang 0.5.23 benchmark/serving.py)."""

    base_url: str
    model: str
    vocab_size: int | None = None
    """Token ids below it are valid; None where the server does not say."""
    tokenizer: Literal["bytes"] | None = None
    """How the server makes tokens of text: "bytes" is one token a UTF-8 byte; None is not known here."""
    endpoint: EndpointName = "generate"
    ignore_eos: bool = True
    """Generate as many tokens as were asked for, whatever the model would rather."""
    usage: bool = True
    """OpenAI endpoints: ask for token counts in every event (`stream_options`), and for accept length and cached tokens
    at the end (`sglext`). bench_serving does not."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are added to each body, over what stands there."""

    @property
    def url(self) -> str:
        """Address that requests are posted to."""
        return self.base_url.rstrip("/") + PATHS[self.endpoint]

    def body(self, prompt: Prompt) -> bytes:
        """The JSON of one streaming request; greedy unless `extra_body` says otherwise.

        Raises:
            InputError: the endpoint cannot take such a prompt.

        """
        return orjson.dumps({**_BODIES[self.endpoint](self, prompt), **self.extra_body, **(prompt.extra or {})})


def _generate(target: Target, prompt: Prompt) -> dict[str, Any]:
    _refuse_messages(prompt)
    content = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": prompt.input_ids}
    sampling = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": target.ignore_eos}
    return {**content, "sampling_params": sampling, "stream": True}


def _refuse_messages(prompt: Prompt) -> None:
    if prompt.text is None and prompt.input_ids is None:
        raise InputError("the dataset draws conversations, which only the endpoint chat takes")


def _completions(target: Target, prompt: Prompt) -> dict[str, Any]:
    _refuse_messages(prompt)
    content = prompt.text if prompt.input_ids is None else prompt.input_ids
    return {
        "model": target.model, "prompt": content, "best_of": 1, "max_tokens": prompt.output_len,
        **_openai_rest(target),
    }  # fmt: skip


def _chat(target: Target, prompt: Prompt) -> dict[str, Any]:
    if prompt.text is None and prompt.messages is None:
        raise InputError(
            "the chat endpoint takes text, and the dataset draws token ids: use another dataset, or the endpoint "
            "generate or completions"
        )
    messages = prompt.messages or [{"role": "user", "content": prompt.text}]
    return {
        "model": target.model, "messages": messages, "max_completion_tokens": prompt.output_len,
        **_openai_rest(target),
    }  # fmt: skip


def _openai_rest(target: Target) -> dict[str, Any]:
    told = _TELL if target.usage else {}
    return {"stream": True, "temperature": 0.0, "ignore_eos": target.ignore_eos, **told}


_TELL = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_cached_tokens_details": True,
    "return_spec_tokens_details": True,
}

_BODIES = {"generate": _generate, "completions": _completions, "chat": _chat}

"""Where requests go and the JSON body of one, for /generate, /v1/completions and /v1/chat/completions.

The bodies are bench_serving's (sglang 0.5.23 benchmark/serving.py:256-300, 440-470, 690-725), so that servers do the
same work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import orjson

from dsabench.errors import InputError
from dsabench.load.plan import SizeLimits, honest_answer_bytes
from dsabench.model.sample import EndpointName, Prompt

PATHS: Mapping[EndpointName, str] = {
    "generate": "/generate",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
"""Endpoint → path. bench_serving calls them the backends sglang, sglang-oai and sglang-oai-chat."""


ENDPOINTS: Mapping[str, EndpointName] = {
    "sglang": "generate",
    "sglang-native": "generate",
    "sglang-oai": "completions",
    "sglang-oai-chat": "chat",
    "vllm": "completions",
    "vllm-chat": "chat",
    "lmdeploy": "completions",
    "lmdeploy-chat": "chat",
}
"""bench_serving's backends, less those for embeddings and for servers of other formats."""


@dataclass(frozen=True, slots=True)
class LoadTarget:
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

    @property
    def options(self) -> RequestOptions:
        """What all requests have in common; greedy unless `extra_body` says otherwise."""
        told = _TELL if self.usage and self.endpoint != "generate" else {}
        return RequestOptions(self.endpoint, self.model, self.ignore_eos, extra={**told, **self.extra_body})

    def body(self, prompt: Prompt) -> bytes:
        """The JSON of one streaming request; see `body_of`."""
        return body_of(self.options, prompt)


_TELL = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_cached_tokens_details": True,
    "return_spec_tokens_details": True,
}


class RequestOptions(NamedTuple):
    """What all requests of a run have in common."""

    endpoint: EndpointName
    model: str
    ignore_eos: bool = True
    temperature: float = 0.0
    top_p: float = 1.0
    return_logprob: bool = False
    top_logprobs_num: int = 0
    token_ids_logprob: list[int] | None = None
    logprob_start_len: int = -1
    return_routed_experts: bool = False
    extra: Mapping[str, object] = MappingProxyType({})
    """Goes over everything else; what a prompt brings itself goes over it."""


def body_of(options: RequestOptions, prompt: Prompt) -> bytes:
    """The JSON of one request.

    Raises:
        InputError: the endpoint cannot take such a prompt.

    """
    extra = {**options.extra, **prompt.extra} if prompt.extra else options.extra
    body = _generate_body(options, prompt) if options.endpoint == "generate" else _openai_body(options, prompt)
    return orjson.dumps({**body, **extra})


def asked_tokens(options: RequestOptions, prompts: Sequence[Prompt]) -> list[int | None]:
    """How many tokens each request asks for; None where keys that were added to its body decide it."""
    return [
        None if (options.extra.keys() | (prompt.extra or {}).keys()) & _LENGTH_KEYS else prompt.output_len
        for prompt in prompts
    ]


def size_limits(options: RequestOptions, prompts: Sequence[Prompt]) -> SizeLimits:
    """What honest answers may have. Where added keys may make them longer (log probabilities, experts, tools), only the run
    has a limit.
    """
    told = options.return_logprob or options.return_routed_experts
    added = options.extra.keys() | {name for prompt in prompts for name in prompt.extra or ()}
    if told or added - _TELL.keys() - {"temperature", "top_p", "stop"}:
        return SizeLimits()
    return SizeLimits(honest_answer_bytes(max((prompt.output_len for prompt in prompts), default=0)))


_LENGTH_KEYS = frozenset({"sampling_params", "max_tokens", "max_completion_tokens", "n"})


def _generate_body(options: RequestOptions, prompt: Prompt) -> dict[str, object]:
    _refuse_messages(prompt)
    sampling: dict[str, object] = {
        "temperature": options.temperature,
        "max_new_tokens": prompt.output_len,
        "ignore_eos": options.ignore_eos,
    }
    if options.top_p < 1.0:
        sampling["top_p"] = options.top_p
    body: dict[str, object] = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": prompt.input_ids}
    body |= {
        "sampling_params": sampling,
        "stream": True,
        "lora_path": None,
        "return_logprob": options.return_logprob,
        "return_routed_experts": options.return_routed_experts,
        "logprob_start_len": options.logprob_start_len,
    }
    if options.top_logprobs_num > 0:
        body["top_logprobs_num"] = options.top_logprobs_num
    if options.token_ids_logprob is not None:
        body["token_ids_logprob"] = options.token_ids_logprob
    return body


def _openai_body(options: RequestOptions, prompt: Prompt) -> dict[str, object]:
    """Temperature 0 whatever `--temperature` says: there bench_serving takes it from `--extra-request-body` alone."""
    if options.endpoint == "chat":
        if prompt.text is None and prompt.messages is None:
            raise InputError(
                "the chat endpoint takes text, and the dataset draws token ids: use another dataset, or the endpoint "
                "generate or completions"
            )
        messages = prompt.messages or ({"role": "user", "content": prompt.text},)
        start = {"model": options.model, "messages": messages, "max_completion_tokens": prompt.output_len}
    else:
        _refuse_messages(prompt)
        content = prompt.text if prompt.input_ids is None else prompt.input_ids
        start = {"model": options.model, "prompt": content, "best_of": 1, "max_tokens": prompt.output_len}
    logprobs = {"logprobs": options.top_logprobs_num} if options.return_logprob and options.top_logprobs_num > 0 else {}
    return {**start, "stream": True, "temperature": 0.0, "ignore_eos": options.ignore_eos} | (
        logprobs if options.endpoint == "completions" else {}
    )


def _refuse_messages(prompt: Prompt) -> None:
    if prompt.text is None and prompt.input_ids is None:
        raise InputError(
            "the dataset draws conversations, which only the endpoint chat takes (dsabench bench: --backend sglang-oai-chat)"
        )

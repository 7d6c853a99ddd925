"""Request bodies as bench_serving sends them (serving.py:256-300, 440-470, 690-725), so that servers do the same work."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

from dsabench.errors import InputError
from dsabench.load.target import EndpointName
from dsabench.model.sample import Prompt


class Wish(NamedTuple):
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


def body_of(wish: Wish, prompt: Prompt) -> bytes:
    """The JSON of one request.

    Raises:
        InputError: the endpoint cannot take such a prompt.

    """
    extra = {**wish.extra, **prompt.extra} if prompt.extra else wish.extra
    body = _generate(wish, prompt) if wish.endpoint == "generate" else _openai(wish, prompt)
    return orjson.dumps({**body, **extra})


def _generate(wish: Wish, prompt: Prompt) -> dict[str, object]:
    if prompt.input_ids is None and prompt.text is None:
        raise InputError("a conversation needs a chat backend, e.g. --backend sglang-oai-chat")
    sampling: dict[str, object] = {
        "temperature": wish.temperature,
        "max_new_tokens": prompt.output_len,
        "ignore_eos": wish.ignore_eos,
    }
    if wish.top_p < 1.0:
        sampling["top_p"] = wish.top_p
    body: dict[str, object] = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": prompt.input_ids}
    body |= {
        "sampling_params": sampling,
        "stream": True,
        "lora_path": None,
        "return_logprob": wish.return_logprob,
        "return_routed_experts": wish.return_routed_experts,
        "logprob_start_len": wish.logprob_start_len,
    }
    if wish.top_logprobs_num > 0:
        body["top_logprobs_num"] = wish.top_logprobs_num
    if wish.token_ids_logprob is not None:
        body["token_ids_logprob"] = wish.token_ids_logprob
    return body


def _openai(wish: Wish, prompt: Prompt) -> dict[str, object]:
    """Temperature 0 whatever `--temperature` says: there bench_serving takes it from `--extra-request-body` alone."""
    if wish.endpoint == "chat":
        messages = prompt.messages or ({"role": "user", "content": prompt.text},)
        start = {"model": wish.model, "messages": messages, "max_completion_tokens": prompt.output_len}
    else:
        content = prompt.text if prompt.input_ids is None else prompt.input_ids
        start = {"model": wish.model, "prompt": content, "best_of": 1, "max_tokens": prompt.output_len}
    logprobs = {"logprobs": wish.top_logprobs_num} if wish.return_logprob and wish.top_logprobs_num > 0 else {}
    return {**start, "stream": True, "temperature": 0.0, "ignore_eos": wish.ignore_eos} | (
        logprobs if wish.endpoint == "completions" else {}
    )

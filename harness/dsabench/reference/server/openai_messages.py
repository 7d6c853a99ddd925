"""Bodies of OpenAI's endpoints, as sglang 0.5.23 takes and answers them (entrypoints/openai/protocol.py)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from dsabench.errors import InputError
from dsabench.reference.engine.request import FinishReason
from dsabench.reference.server import messages
from dsabench.reference.server.messages import Count, Limits, Token, Wanted

_STRICT = ConfigDict(strict=True, frozen=True)
_DEFAULT_COMPLETION_TOKENS = 16


class StreamOptions(BaseModel):
    """When a stream says how many tokens it has."""

    model_config = _STRICT

    include_usage: bool | None = False
    """In an event of its own before `[DONE]`."""
    continuous_usage_stats: bool | None = False
    """In every event."""


class OpenAiBody(messages.BootstrapBody):
    """What both endpoints take. Fields that are not listed are ignored; those that would change the answer are refused."""

    model_config = _STRICT

    model: str = "default"
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] | None = None
    ignore_eos: bool = False
    rid: str | None = None
    n: Literal[1] = 1
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: None = None


class CompletionBody(OpenAiBody):
    """Body of POST /v1/completions."""

    prompt: str | list[str] | list[Token] | list[list[Token]]
    max_tokens: Count = _DEFAULT_COMPLETION_TOKENS
    best_of: Literal[1] | None = None
    echo: Literal[False] = False
    logprobs: None = None
    suffix: None = None


class TextPart(BaseModel):
    """One part of a message."""

    model_config = _STRICT

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    model_config = _STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatBody(OpenAiBody):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    tools: list[dict[str, Any]] | None = None
    """Shown to the model; random weights call none."""
    logprobs: Literal[False] | None = None


def chat_prompt(body: ChatBody) -> str:
    """The chat template of the byte tokenizer: a role in angle brackets, the text, a line feed; then the answer's role.

    The load generator, which counts tokens of chats, has it too (`load.tokenizers.Bytewise.runtime_chat`).
    """
    tools = f"<|tools|>{orjson.dumps(body.tools).decode()}\n" if body.tools else ""
    return tools + "".join(f"<|{message.role}|>{message.text}\n" for message in body.messages) + "<|assistant|>"


def wanted_of(body: CompletionBody | ChatBody, limits: Limits) -> list[Wanted]:
    """One entry per prompt, checked as those of /generate are.

    Raises:
        InputError: what is wrong with it, in one line.

    """
    prompt: object
    if isinstance(body, ChatBody):
        prompt, prefix, new_tokens = chat_prompt(body), "chatcmpl", body.max_completion_tokens or body.max_tokens
    else:
        prompt, prefix, new_tokens = body.prompt, "cmpl", body.max_tokens
    many = prompt if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else None
    is_text = isinstance(prompt, str) or (many is not None and isinstance(many[0], str))
    rids = [body.rid or f"{prefix}-{uuid.uuid4().hex}" for _ in many or [prompt]]
    sampling = {
        "max_new_tokens": new_tokens, "temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k,
        "ignore_eos": body.ignore_eos, "stop": body.stop, "stop_token_ids": body.stop_token_ids, "seed": body.seed,
    }  # fmt: skip
    request = {
        "text" if is_text else "input_ids": prompt,
        "sampling_params": sampling,
        **body.model_dump(include=set(messages.BootstrapBody.model_fields)),
        "rid": rids if many is not None else rids[0],
    }
    if not prompt:
        raise InputError("Prompt cannot be empty")
    return messages.read_generate(orjson.dumps(request), limits)[1]


def usage(prompts: Sequence[int], completions: Sequence[int], cached_tokens: int) -> dict[str, object]:
    """Tokens of a whole answer."""
    return {
        "prompt_tokens": sum(prompts),
        "total_tokens": sum(prompts) + sum(completions),
        "completion_tokens": sum(completions),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "reasoning_tokens": 0,
    }


def ending(finish: FinishReason | None) -> dict[str, object]:
    """The two keys of a choice that say how it ended."""
    return {"finish_reason": finish.type if finish else None, "matched_stop": finish.matched if finish else None}

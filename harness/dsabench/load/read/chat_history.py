"""Conversations whose later turns repeat the server's own answers, as sglang's bench_serving sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsabench.errors import HttpFault
from dsabench.load.client.response import ResponseReader
from dsabench.load.read.openai import said_in_chat
from dsabench.load.requests import RequestOptions, body_of
from dsabench.load.schedule import are_chats
from dsabench.model.sample import Prompt

Messages = tuple[Mapping[str, object], ...]


class ChatHistory:
    """A `FollowUp`. It runs between two turns, on the thread that stamps what arrives; the loop's lag tells what that costs."""

    def __init__(self, options: RequestOptions, prompts: Sequence[Prompt]) -> None:
        self._options, self._prompts = options, prompts
        self._said: dict[int, Messages] = {}
        """Running request → all of its messages."""

    def __call__(self, before: int, index: int, answer: bytes) -> bytes:
        """Everything said before, the answer (a failed turn's as far as it came), and the messages of this turn."""
        prompt = self._prompts[index]
        earlier = self._said.pop(before, None) or self._prompts[before].messages or ()
        said = (*earlier, {"role": "assistant", "content": _text_of(answer)}, *(prompt.messages or ()))
        self._said[index] = said
        return body_of(self._options, replace(prompt, messages=said))


def follow_up_of(options: RequestOptions, prompts: Sequence[Prompt]) -> ChatHistory | None:
    """None where every body is known before the run."""
    return ChatHistory(options, prompts) if are_chats(prompts) else None


def _text_of(answer: bytes) -> str:
    """What was said, as far as it came."""
    try:
        return said_in_chat(ResponseReader().body([(0.0, answer)]))
    except HttpFault:
        return ""

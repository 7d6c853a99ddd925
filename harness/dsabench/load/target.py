"""Where the load goes and what one request looks like there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import orjson

from dsabench.model.sample import Prompt


@dataclass(frozen=True, slots=True)
class Target:
    """A server that speaks sglang's native /generate."""

    base_url: str
    model: str
    vocab_size: int | None = None
    """Token ids below it are valid; None where the server does not say."""
    tokenizer: Literal["bytes"] | None = None
    """How the server makes tokens of text: "bytes" is one token a UTF-8 byte; None is not known here."""

    @property
    def url(self) -> str:
        """Address that requests are posted to."""
        return f"{self.base_url.rstrip('/')}/generate"

    def body(self, prompt: Prompt) -> bytes:
        """The JSON of one streaming request: greedy, never stopped by an end-of-sequence token."""
        content = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": prompt.input_ids}
        sampling = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": True}
        return orjson.dumps({**content, "sampling_params": sampling, "stream": True})

"""One request, from its arrival to its last token, and the byte-level tokenizer.

Token 0 … 255 is that byte of UTF-8, then three special tokens.
"""

from __future__ import annotations

import codecs
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch  # named in annotations only: whoever speaks HTTP need not load it

    from dsabench.reference.engine.kv_cache import KvTransfer


BOS = 256
EOS = 257
PAD = 258


def encode(text: str) -> list[int]:
    """One token per UTF-8 byte. No token marks the beginning, so that text and its bytes sent as ids are one prompt."""
    return list(text.encode())


class IncrementalDecoder:
    """Turns generated tokens into text as they come.

    The bytes of a character that is not complete yet are held back; bytes that can never become a character turn into
    U+FFFD. Special tokens have no text.
    """

    __slots__ = ("_codec", "text")

    def __init__(self) -> None:
        self._codec = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""

    def feed(self, token: int) -> None:
        """Take one token."""
        if token < BOS:
            self.text += self._codec.decode(bytes((token,)))

    def finish(self) -> None:
        """Nothing follows: what was held back becomes U+FFFD."""
        self.text += self._codec.decode(b"", final=True)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen, and when generation ends. Names and defaults are sglang's."""

    max_new_tokens: int
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 sets no limit."""
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    """Makes this request's choices independent of what else runs."""


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why generation ended."""

    type: Literal["length", "stop", "abort"]
    length: int | None = None
    matched: int | str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptedDrafts:
    """What speculation brought: passes of the model that verified drafts, drafts proposed, drafts that it agreed with."""

    verify_passes: int = 0
    proposed: int = 0
    correct: int = 0

    def __add__(self, other: AcceptedDrafts) -> AcceptedDrafts:
        """Of two passes, or two engines, together."""
        return AcceptedDrafts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(slots=True, eq=False)
class Request:
    """State of one request in the engine."""

    id: str
    prompt: list[int]
    sampling: SamplingParams
    output: list[int] = field(default_factory=list)
    decoder: IncrementalDecoder = field(default_factory=IncrementalDecoder)
    generator: torch.Generator | None = None
    stored_tokens: int = 0
    """Tokens whose KV is in the cache, reused ones included."""
    cached_tokens: int = 0
    """Tokens whose KV was there already when the request was admitted."""
    path: list[int] = field(default_factory=list)
    """Known pages of its prefix that it holds."""
    pages: list[int] = field(default_factory=list)
    own_pages: set[int] = field(default_factory=set)
    """Those of `pages` whose content the pool does not know."""
    device_pages: list[int] = field(default_factory=list)
    """HiSparse: where its rows on the device are."""
    row: int | None = None
    """Its row in the table of slots."""
    finish: FinishReason | None = None
    hidden: torch.Tensor | None = None
    """[m, hidden] trunk states in front of the last m tokens, those that the draft head has not seen; see `mtp`."""
    accepted: AcceptedDrafts = field(default_factory=AcceptedDrafts)
    hand_over: bool = False
    """Disaggregation: its first token and its KV are for another server."""
    transfer: KvTransfer | None = None
    """Disaggregation: what the prefill server made of the prompt, to be sent or just received."""
    told: int = 0
    """Tokens that the server has heard of."""

    @property
    def table_row(self) -> int:
        """The same of a request that was admitted."""
        assert self.row is not None, "it has one"
        return self.row

    @property
    def total_tokens(self) -> int:
        """Longest it can become."""
        return len(self.prompt) + self.sampling.max_new_tokens

    def add(self, token: int) -> None:
        """Take a generated token and see whether it is the last."""
        self.output.append(token)
        sampling = self.sampling
        if token in sampling.stop_token_ids or (token == EOS and not sampling.ignore_eos):
            self.finish = FinishReason("stop", matched=token)
        else:
            self.decoder.feed(token)
            self._stop_at_string()
        if self.finish is None and len(self.output) >= sampling.max_new_tokens:
            self.finish = FinishReason("length", length=len(self.output))
        if self.finish is not None and not isinstance(self.finish.matched, str):
            self.decoder.finish()

    def _stop_at_string(self) -> None:
        text = self.decoder.text
        for stop in self.sampling.stop:
            # a token adds at most 3 characters: a broken sequence's U+FFFD and what follows
            at = text.find(stop, max(0, len(text) - len(stop) - 3))
            if at >= 0:
                self.finish = FinishReason("stop", matched=stop)
                self.decoder.text = text[:at]
                return

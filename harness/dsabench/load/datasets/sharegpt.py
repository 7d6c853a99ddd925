"""`random`: text of ShareGPT's conversations, cut or repeated to the length asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from dsabench.errors import InputError
from dsabench.load.datasets.protocol import Lengths
from dsabench.model.sample import Prompt


@dataclass(frozen=True, slots=True)
class ShareGpt:
    """First turns of the conversations with at least two turns, as in bench_serving, in a seeded order.

    Lengths are exact for a byte-level tokenizer: one token a UTF-8 byte.
    """

    path: Path

    def draw(self, lengths: Sequence[Lengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """Each prompt is another conversation; conversations that look alike at the length asked count once."""
        openings = _openings(self.path)
        order = iter(rng.permutation(len(openings)).tolist())
        texts: dict[str, None] = {}  # an ordered set
        for length in lengths:
            fitted = (_fit(openings[place], length.input_len) for place in order)
            text = next((text for text in fitted if text not in texts), None)
            if text is None:
                raise InputError(
                    f"{self.path}: {len(texts)} distinct conversations, the workload needs {len(lengths)}"
                    " (num_prompts + warmup_requests)"
                )
            texts[text] = None
        return tuple(Prompt(*length, text=text) for length, text in zip(lengths, texts, strict=True))


def _openings(path: Path) -> list[str]:
    """Non-empty first turns."""
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"dataset_path: {path}: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"dataset_path: {path}: not JSON: {error}") from error
    if not isinstance(data, list):
        raise InputError(f"dataset_path: {path}: ShareGPT's JSON is a list of conversations")
    openings = list(itertools.chain.from_iterable(map(_opening, data)))
    if not openings:
        raise InputError(f"dataset_path: {path}: no conversation with two turns (conversations: [{{value: …}}, …])")
    return openings


def _opening(entry: object) -> Iterator[str]:
    match entry:
        case {"conversations": [{"value": str(text)}, _, *_]} | {"conversation": [{"value": str(text)}, _, *_]} if text:
            yield text


def _fit(text: str, length_tokens: int) -> str:
    """Repeat or cut to exactly that many bytes; a character that the cut would split becomes spaces."""
    data = text.encode("utf-8", "replace")
    tiled = (data * -(-length_tokens // len(data)))[:length_tokens]
    return tiled.decode("utf-8", "ignore") + " " * (length_tokens - len(tiled.decode("utf-8", "ignore").encode()))

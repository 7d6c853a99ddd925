"""The datasets that requests are drawn from, and what is true of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

DatasetName = Literal[
    "sharegpt",
    "custom",
    "openai",
    "random",
    "random-ids",
    "generated-shared-prefix",
    "agentic-trace",
    "mooncake",
    "burstgpt",
]


class DatasetTraits(NamedTuple):
    """What its readers must know of a dataset."""

    needs: tuple[str, ...] = ()
    """Keys that a workload of it must set."""
    counts_text: bool = True
    """Its lengths are tokens of text, so a tokenizer is needed."""
    is_trace: bool = False
    """It says when each request is sent."""
    shares_prefixes: bool = False
    """Its prompts share prefixes on purpose, or may."""
    only_chat: bool = False
    """It goes to a chat endpoint alone."""
    is_written: bool = False
    """People or programs wrote its prompts, so drafts are accepted as in use."""


_LENGTHS = ("input_len", "output_len")
_FILE = ("dataset_path",)
DATASETS: Mapping[DatasetName, DatasetTraits] = {
    "sharegpt": DatasetTraits(is_written=True),
    "custom": DatasetTraits(_FILE, shares_prefixes=True, is_written=True),
    "openai": DatasetTraits(_FILE, shares_prefixes=True, only_chat=True, is_written=True),
    "random": DatasetTraits(_LENGTHS),
    "random-ids": DatasetTraits(_LENGTHS, counts_text=False),
    "generated-shared-prefix": DatasetTraits(("shared_prefix",), shares_prefixes=True),
    "agentic-trace": DatasetTraits(_FILE, shares_prefixes=True, only_chat=True, is_written=True),
    "mooncake": DatasetTraits(is_trace=True, shares_prefixes=True),
    "burstgpt": DatasetTraits(counts_text=False, is_trace=True),
}

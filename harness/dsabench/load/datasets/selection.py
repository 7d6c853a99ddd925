"""What is asked of a dataset: one value for `dsabench bench` and for a workload."""

from __future__ import annotations

from typing import Literal, NamedTuple

DatasetName = Literal["random", "random-ids", "sharegpt", "generated-shared-prefix", "mooncake", "custom", "openai"]


class SharedPrefix(NamedTuple):
    """Groups of prompts behind one system prompt each. Lengths are tokens."""

    groups: int = 64
    prompts_per_group: int = 16
    system_prompt_len: int = 2048
    question_len: int = 128
    output_len: int = 256
    range_ratio: float = 1.0
    ordered: bool = False
    """Group after group; else shuffled."""
    zipf_alpha: float | None = None
    """Groups drawn by rank with p ∝ 1 / rank**alpha; None gives each the same number."""
    fast_prepare: bool = False
    """Do not count the prompts' tokens: each is said to be one long."""


class Trace(NamedTuple):
    """A Mooncake trace: one JSON object per line with timestamp (ms), input_length, output_length, hash_ids."""

    name: Literal["mooncake", "conversation", "synthetic", "toolagent"] = "conversation"
    """Which public trace, where no path is given."""
    slowdown: float = 1.0
    rounds: int = 1


class Selection(NamedTuple):
    """Which prompts, how many, how long."""

    dataset: DatasetName
    num_prompts: int
    seed: int
    path: str | None = None
    """A file or an http(s) address; None takes the dataset's public file, where it has one."""
    sha256: str | None = None
    """What the file must have; None trusts the first download."""
    input_len: int = 1024
    output_len: int = 1024
    range_ratio: float = 0.0
    fixed_output_len: int | None = None
    """sharegpt, custom, openai: replaces the length of the recorded answer."""
    context_len: int | None = None
    """sharegpt, custom: longer requests are left out."""
    prompt_suffix: str = ""
    apply_chat_template: bool = False
    as_ids: bool = False
    """Send token ids where the dataset has them."""
    shared_prefix: SharedPrefix = SharedPrefix()
    trace: Trace = Trace()

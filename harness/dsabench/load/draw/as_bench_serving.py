"""What is asked of a dataset, and the draw of sglang's bench_serving (0.5.23) for a seed: prompts, warm-up and gaps.

The draw of a dataset is imported when it is used: the start of a load generator counts in its cost.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from dsabench.errors import InputError
from dsabench.load.draw.tokenizers import ByteTokenizer, NoTokenizer, Tokenizer, load_tokenizer
from dsabench.load.requests import LoadTarget
from dsabench.load.schedule import (
    Times,
    arrivals_for,
    conversation_of,
    exact_arrivals,
    is_timed,
    recorded_arrivals,
)
from dsabench.model.dataset import DATASETS, DatasetName
from dsabench.model.sample import Prompt

if TYPE_CHECKING:
    from dsabench.load.draw.prompts import DrawnPrompts
    from dsabench.model.workload import Workload


class SharedPrefixShape(NamedTuple):
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
    turns: int = 1
    """Of each conversation. Above 1 they are chats, whose later turns repeat the server's own answers."""
    fast_prepare: bool = False
    """Do not count the prompts' tokens: each is said to be one long."""


class TraceReplay(NamedTuple):
    """How a trace is replayed."""

    name: Literal["mooncake", "conversation", "synthetic", "toolagent"] = "conversation"
    """`mooncake`: which public trace, where no path is given."""
    slowdown: float = 1.0
    rounds: int = 1
    max_turns: int | None = None
    """`agentic-trace`: of each conversation; None sends all."""
    offset: int = 0
    """`agentic-trace`: begin with this conversation."""


class DatasetSelection(NamedTuple):
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
    rows: tuple[float, float] | None = None
    """From where to where in a file that is not drawn exactly, as shares of its rows; None is all of them."""
    shared_prefix: SharedPrefixShape = SharedPrefixShape()
    trace: TraceReplay = TraceReplay()
    exact: bool = True
    """As bench_serving to the last prompt: damaged lines are passed over, traces become text. Else a line that cannot be
    used is refused, and a trace is replayed token for token.
    """


class DrawnDataset(NamedTuple):
    """Prompts in the order in which they are sent."""

    prompts: list[Prompt]
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know of the data, one line each."""


class SeededGenerators(NamedTuple):
    """State is shared on purpose: lengths, prompts and arrival gaps come from one stream, in bench_serving's order."""

    python: random.Random
    legacy: np.random.RandomState

    @classmethod
    def of(cls, seed: int) -> Self:
        """As after `random.seed(seed)` and `np.random.seed(seed)`; 0 ≤ seed < 2**32."""
        return cls(random.Random(seed), np.random.RandomState(seed))

    def lengths(self, longest: int, range_ratio: float, count: int) -> list[int]:
        """Uniform on [max(int(longest × ratio), 1), longest] (datasets/common.py, compute_random_lens)."""
        if longest <= 0:
            return [0] * count
        drawn: list[int] = self.legacy.randint(max(int(longest * range_ratio), 1), longest + 1, size=count).tolist()
        return drawn


Draw = Callable[[DatasetSelection, Tokenizer, SeededGenerators], list[Prompt]]
_DRAWS: Mapping[DatasetName, tuple[str, str]] = {
    "random": ("synthetic", "draw_random"),
    "random-ids": ("synthetic", "draw_random"),
    "sharegpt": ("recorded", "draw_conversations"),
    "custom": ("recorded", "draw_conversations"),
    "generated-shared-prefix": ("synthetic", "draw_shared_prefix"),
    "agentic-trace": ("conversations", "draw_agentic"),
    "mooncake": ("recorded", "draw_mooncake"),
    "openai": ("recorded", "draw_openai"),
}
"""Dataset → module beside this one, and its function."""
CheckedDraw = Callable[[DatasetSelection, Tokenizer, SeededGenerators], DrawnDataset]
_CHECKED_DRAWS: Mapping[DatasetName, tuple[str, str]] = {
    "sharegpt": ("recorded", "draw_checked"),
    "custom": ("recorded", "draw_checked"),
    "openai": ("recorded", "draw_checked"),
    "mooncake": ("traces", "draw_trace"),
    "burstgpt": ("traces", "draw_trace"),
}
"""The same for datasets of which every row is checked, unless an exact draw is asked for. bench_serving has no `burstgpt`."""


def _function(place: tuple[str, str]) -> Any:
    return getattr(import_module(f"dsabench.load.draw.{place[0]}"), place[1])


def draw_dataset(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> DrawnDataset:
    """What is sent; afterwards `generators` stands where the arrival gaps are drawn.

    Raises:
        InputError: see `draw_exact`; with file and line where a row is wrong.

    """
    place = None if selection.exact else _CHECKED_DRAWS.get(selection.dataset)
    if place is None:
        return DrawnDataset(draw_exact(selection, tokenizer, generators))
    draw: CheckedDraw = _function(place)
    return draw(selection, tokenizer, generators)


def draw_exact(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """The prompts in the order in which they are sent. Afterwards `generators` stands where the arrival gaps are drawn.

    Raises:
        InputError: a file is missing or of another format, or the tokenizer lacks what the dataset needs.

    """
    draw: Draw = _function(_DRAWS[selection.dataset])
    return draw(selection, tokenizer, generators)


_WARM_UP_TOKENS_MAX = 32


def warm_up_of(first: Prompt) -> Prompt:
    """A prompt again, with at most 32 tokens and on its own: flush the cache after it."""
    output_len = min(first.output_len, _WARM_UP_TOKENS_MAX)
    return replace(first, output_len=output_len, extra=None, due_s=None, session=None, continues=False)


def draw_as_bench_serving(target: LoadTarget, workload: Workload) -> DrawnPrompts:
    """The warm-up is the first prompt again; see `warm_up_of`.

    Raises:
        InputError: a file is missing or of another format, or the dataset lacks what it needs.

    """
    from dsabench.load.draw.prompts import DrawnPrompts  # noqa: PLC0415  (a command line draws no workload)

    generators = SeededGenerators.of(workload.seed)
    drawn = draw_dataset(selection_of(workload), _tokenizer(target, workload), generators)
    prompts = tuple(drawn.prompts)
    if (count := sum(not prompt.continues for prompt in prompts)) < workload.num_prompts:
        raise InputError(
            f"workload {workload.name}: dataset {workload.dataset} has {count} prompts for it, num_prompts is"
            f" {workload.num_prompts}"
        )
    warm_up = (warm_up_of(prompts[0]),) * workload.warmup_requests
    return DrawnPrompts(prompts, warm_up, _due_s(workload, prompts, generators), drawn.notes)


def selection_of(workload: Workload) -> DatasetSelection:
    """What bench_serving's flags would say.

    Raises:
        InputError: the dataset needs a key that is not there.

    """
    random = workload.dataset in {"random", "random-ids"}
    missing = [key for key in DATASETS[workload.dataset].needs if getattr(workload, key) is None]
    if missing:
        raise InputError(f"workload {workload.name}: dataset {workload.dataset} needs {' and '.join(missing)}")
    return DatasetSelection(
        dataset=workload.dataset,
        num_prompts=workload.num_prompts,
        seed=workload.seed,
        path=workload.dataset_path,
        sha256=workload.dataset_sha256,
        input_len=workload.input_len or 0,
        output_len=workload.output_len or 0,
        range_ratio=workload.range_ratio,
        fixed_output_len=None if random else workload.output_len,
        context_len=workload.context_len,
        apply_chat_template=workload.apply_chat_template is True,
        as_ids=workload.dataset == "random-ids",
        rows=workload.rows,
        exact=workload.draw == "exact",
        shared_prefix=_shared_prefix(workload),
        trace=TraceReplay()
        if workload.trace is None
        else TraceReplay("conversation", workload.trace.slowdown, workload.trace.rounds, workload.trace.max_turns),
    )


def _shared_prefix(workload: Workload) -> SharedPrefixShape:
    shape = workload.shared_prefix
    if workload.dataset != "generated-shared-prefix" or shape is None:
        return SharedPrefixShape()
    if shape.groups * shape.prompts_per_group != workload.num_prompts:
        raise InputError(
            f"workload {workload.name}: num_prompts is {workload.num_prompts}, but {shape.groups} groups of"
            f" {shape.prompts_per_group} prompts are {shape.groups * shape.prompts_per_group}"
        )
    return SharedPrefixShape(
        groups=shape.groups,
        prompts_per_group=shape.prompts_per_group,
        system_prompt_len=shape.system_prompt_len,
        question_len=shape.question_len,
        output_len=shape.output_len,
        range_ratio=shape.range_ratio,
        zipf_alpha=shape.zipf_alpha,
        turns=shape.turns,
    )


def _tokenizer(target: LoadTarget, workload: Workload) -> Tokenizer:
    if workload.tokenizer is not None:
        return load_tokenizer(workload.tokenizer)
    if workload.dataset == "random-ids" and target.vocab_size is not None:
        return NoTokenizer(target.vocab_size)
    if target.tokenizer == "bytes":
        return ByteTokenizer()
    if not workload.counts_text and target.vocab_size is not None:
        return NoTokenizer(target.vocab_size)
    raise InputError(
        f"workload {workload.name}: dataset {workload.dataset} counts tokens, and the tokenizer of {target.model} is not"
        " known here; give tokenizer (a folder with tokenizer.json)"
    )


def _due_s(workload: Workload, prompts: tuple[Prompt, ...], generators: SeededGenerators) -> Times:
    """A trace's own times, else Poisson gaps from the state that the prompts left behind, else our spacings."""
    if is_timed(prompts) and workload.request_rate is None:
        return recorded_arrivals(prompts).due_s
    begun = conversation_of(prompts)
    count = int(begun[-1]) + 1
    if workload.arrivals == "poisson":
        return exact_arrivals(count, workload.request_rate or math.inf, generators.legacy).due_s[begun]
    return arrivals_for(workload).times_s(count, np.random.default_rng([workload.seed, 1]))[begun]

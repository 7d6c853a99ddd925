"""What a workload sends, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsabench.errors import InputError
from dsabench.load.arrivals.spacings import Times, arrivals_for
from dsabench.load.datasets.lengths import draw_lengths
from dsabench.load.datasets.protocol import Dataset, Lengths
from dsabench.load.datasets.random_ids import RandomIds
from dsabench.load.datasets.sessions import RandomSessions, turns_of
from dsabench.load.datasets.sharegpt import ShareGpt
from dsabench.load.target import Target
from dsabench.model.sample import Prompt

if TYPE_CHECKING:
    from dsabench.model.workload import ConversationSpec, Workload


class Prompts(NamedTuple):
    """One draw of everything that a run sends, and when."""

    measured: tuple[Prompt, ...]
    warm_up: tuple[Prompt, ...]
    due_s: Times
    """[measured], or [sessions]: seconds after the start, ascending from 0; all 0 for a closed loop."""
    turns: tuple[tuple[int, ...], ...] | None = None
    """Of each session the places in `measured`; None where every request is on its own."""


def draw_prompts(target: Target, workload: Workload) -> Prompts:
    """All prompts of a workload and their times; the seed decides them.

    Raises:
        InputError: a dataset file is missing or too small, or the target lacks what the dataset needs.

    """
    if workload.sessions is not None:
        return _draw_sessions(target, workload, workload.sessions)
    if workload.draw is None and workload.dataset in DATASETS:
        return _draw_own(target, workload)
    from dsabench.load.datasets.as_bench_serving import draw_as_bench_serving  # noqa: PLC0415 - it needs these names

    return draw_as_bench_serving(target, workload)


def _draw_own(target: Target, workload: Workload) -> Prompts:
    """No prompt is drawn twice, for the warm-up neither."""
    rng = np.random.default_rng([workload.seed, 0])
    count = workload.num_prompts
    lengths = draw_lengths(workload, count + workload.warmup_requests, rng)
    prompts = DATASETS[workload.dataset](target, workload).draw(lengths, rng)
    due_s = arrivals_for(workload).times_s(count, np.random.default_rng([workload.seed, 1]))
    return Prompts(prompts[:count], prompts[count:], due_s)


def draw_rehearsal(target: Target, workload: Workload, count: int, number: int) -> tuple[Prompt, ...]:
    """The first `count` prompts' lengths with content of their own for each `number`; see `draw_prompts`.

    Where bench_serving's draw or sessions are asked for, prompts of another seed stand in.
    """
    if workload.draw is not None or workload.sessions is not None or workload.dataset not in DATASETS:
        other = workload.model_copy(update={"seed": workload.seed + 1 + number})
        return draw_prompts(target, other).measured[:count]
    lengths = draw_lengths(workload, count, np.random.default_rng([workload.seed, 0]))
    content = np.random.default_rng([workload.seed, 2, number])
    return DATASETS[workload.dataset](target, workload).draw(lengths, content)


def _draw_sessions(target: Target, workload: Workload, shape: ConversationSpec) -> Prompts:
    turns = shape.turns
    if workload.dataset != "random-ids" or workload.draw is not None:
        raise InputError(f"workload {workload.name}: sessions are drawn from dataset random-ids, without draw")
    if workload.num_prompts % turns:
        raise InputError(f"workload {workload.name}: {workload.num_prompts} prompts are no sessions of {turns} turns")
    rng = np.random.default_rng([workload.seed, 0])
    count = workload.num_prompts
    dataset = RandomSessions(_random_ids(target, workload).vocab_size, turns)
    warm_up = -(-workload.warmup_requests // turns) * turns
    lengths = draw_lengths(workload, count + warm_up, rng)
    if shape.opening_len is not None:
        openings = range(0, len(lengths), turns)
        lengths = tuple(
            Lengths(shape.opening_len, one.output_len) if place in openings else one
            for place, one in enumerate(lengths)
        )
    prompts = dataset.draw(lengths, rng)
    due_s = arrivals_for(workload).times_s(count // turns, np.random.default_rng([workload.seed, 1]))
    return Prompts(prompts[:count], prompts[count:][: workload.warmup_requests], due_s, turns_of(count, turns))


def _random_ids(target: Target, workload: Workload) -> RandomIds:
    if target.vocab_size is None:
        raise InputError(
            f"workload {workload.name}: random-ids needs the vocabulary size, which {target.base_url} does not tell"
        )
    return RandomIds(target.vocab_size)


def _sharegpt(target: Target, workload: Workload) -> ShareGpt:
    if workload.dataset_path is None:
        raise InputError(f"workload {workload.name}: dataset random needs dataset_path (ShareGPT's JSON)")
    if target.tokenizer != "bytes":
        raise InputError(
            f"workload {workload.name}: dataset random counts tokens of text, and the tokenizer of {target.model} is"
            " not known here (only the reference runtime's byte-level one is); use random-ids, or draw: exact with tokenizer"
        )
    return ShareGpt(Path(workload.dataset_path))


DATASETS: Mapping[str, Callable[[Target, Workload], Dataset]] = {"random-ids": _random_ids, "random": _sharegpt}
"""Name in a workload → its dataset for a target, of those that have a draw of our own."""

"""Draw the prompts of a workload: random token ids, alone or as conversations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsabench.errors import InputError
from dsabench.load.requests import LoadTarget
from dsabench.load.schedule import Times, arrivals_for, conversation_of
from dsabench.model.sample import Prompt

if TYPE_CHECKING:
    from dsabench.model.workload import ConversationSpec, Workload


class TokenLengths(NamedTuple):
    """Tokens of one request."""

    input_len: int
    output_len: int


def draw_lengths(workload: Workload, count: int, rng: np.random.Generator) -> tuple[TokenLengths, ...]:
    """Uniform on [max(int(length × range_ratio), 1), length], inputs first, then outputs, as bench_serving draws."""

    def uniform(longest: int | None) -> list[int]:
        if longest is None:
            raise InputError(f"workload {workload.name}: dataset {workload.dataset} needs input_len and output_len")
        shortest = max(int(longest * workload.range_ratio), 1)
        return [int(n) for n in rng.integers(shortest, longest + 1, size=count)]

    return tuple(map(TokenLengths, uniform(workload.input_len), uniform(workload.output_len)))


@dataclass(frozen=True, slots=True)
class RandomIdDataset:
    """Ids uniform on the vocabulary. Each prompt has a head of its own.

    bench_serving counts ids upwards from a random offset, so two prompts may be one text shifted; independent ids with
    distinct heads leave a prefix cache nothing to reuse, whatever its page size.
    """

    vocab_size: int

    def draw(self, lengths: Sequence[TokenLengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """The first `_head_len` ids of all prompts are pairwise different, where the shortest prompt has that many."""
        head_len = self._head_len(len(lengths))
        if min((length.input_len for length in lengths), default=0) >= head_len:
            codes = rng.choice(self.vocab_size**head_len, size=len(lengths), replace=False).tolist()
        else:  # too short to tell apart, e.g. 1,000 prompts of one byte
            codes = [None] * len(lengths)
        return tuple(self._prompt(length, code, head_len, rng) for length, code in zip(lengths, codes, strict=True))

    def _head_len(self, count: int) -> int:
        """Fewest ids that can number `count` prompts: 1 wherever the vocabulary is larger than the workload."""
        head_len = 1
        while self.vocab_size**head_len < count and self.vocab_size > 1:
            head_len += 1
        return head_len

    def _prompt(self, length: TokenLengths, code: int | None, head_len: int, rng: np.random.Generator) -> Prompt:
        ids = rng.integers(0, self.vocab_size, size=length.input_len).tolist()
        if code is not None:
            for place in range(head_len):
                code, ids[place] = divmod(code, self.vocab_size)
        return Prompt(length.input_len, length.output_len, input_ids=tuple(ids))


@dataclass(frozen=True, slots=True)
class SessionDataset:
    """Each turn's prompt is the one before it, a placeholder for the answer, and a question.

    The model's own answers are not known when the prompts are drawn: the placeholders are as long, so lengths are exact,
    and a server finds the prompt of the turn before in its cache, but not the tokens that it generated itself.
    """

    vocab_size: int
    turns: int
    pause_s: float = 0.0

    def draw(self, lengths: Sequence[TokenLengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """One prompt per entry, session after session; an entry is a question's and an answer's length.

        Sessions differ from their first id on, wherever `RandomIdDataset` can tell as many apart.
        """
        firsts = RandomIdDataset(self.vocab_size).draw(lengths[:: self.turns], rng)
        return tuple(
            itertools.chain.from_iterable(
                self._session(
                    replace(first, session=str(place)), lengths[place * self.turns : (place + 1) * self.turns], rng
                )
                for place, first in enumerate(firsts)
            )
        )

    def _session(self, first: Prompt, lengths: Sequence[TokenLengths], rng: np.random.Generator) -> list[Prompt]:
        prompts = [first]
        for before, length in itertools.pairwise(lengths):
            said = prompts[-1].input_ids or ()
            more = rng.integers(0, self.vocab_size, size=before.output_len + length.input_len).tolist()
            ids = (*said, *more)
            prompts.append(
                Prompt(len(ids), length.output_len, input_ids=ids, session=first.session, pause_s=self.pause_s)
            )
        return prompts


class DrawnPrompts(NamedTuple):
    """One draw of everything that a run sends, and when."""

    measured: tuple[Prompt, ...]
    warm_up: tuple[Prompt, ...]
    due_s: Times
    """[measured]: seconds after the start, all 0 for a closed loop. Of a session the first one's counts."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know of the data."""


def draw_prompts(target: LoadTarget, workload: Workload) -> DrawnPrompts:
    """All prompts of a workload and their times; the seed decides them.

    Raises:
        InputError: a dataset file is missing or too small, or the target lacks what the dataset needs.

    """
    if workload.sessions is not None:
        return _draw_sessions(target, workload, workload.sessions)
    if workload.draw is None and workload.dataset == "random-ids":
        return _draw_ids(target, workload)
    from dsabench.load.draw.as_bench_serving import draw_as_bench_serving  # noqa: PLC0415 - it needs these names

    return draw_as_bench_serving(target, workload)


def _draw_ids(target: LoadTarget, workload: Workload) -> DrawnPrompts:
    """No prompt is drawn twice, for the warm-up neither."""
    rng = np.random.default_rng([workload.seed, 0])
    count = workload.num_prompts
    lengths = draw_lengths(workload, count + workload.warmup_requests, rng)
    prompts = _random_ids(target, workload).draw(lengths, rng)
    due_s = arrivals_for(workload).times_s(count, np.random.default_rng([workload.seed, 1]))
    return DrawnPrompts(prompts[:count], prompts[count:], due_s)


def draw_rehearsal(target: LoadTarget, workload: Workload, count: int, number: int) -> tuple[Prompt, ...]:
    """The first `count` prompts' (or chats') lengths with content of their own for each `number`; see `draw_prompts`.

    Where bench_serving's draw or sessions are asked for, prompts of another seed stand in.
    """
    if workload.draw is not None or workload.sessions is not None or workload.dataset != "random-ids":
        other = workload.model_copy(update={"seed": workload.seed + 1 + number})
        drawn = draw_prompts(target, other).measured
        return tuple(itertools.compress(drawn, conversation_of(drawn) < count))
    lengths = draw_lengths(workload, count, np.random.default_rng([workload.seed, 0]))
    content = np.random.default_rng([workload.seed, 2, number])
    return _random_ids(target, workload).draw(lengths, content)


def _draw_sessions(target: LoadTarget, workload: Workload, shape: ConversationSpec) -> DrawnPrompts:
    turns = shape.turns
    if workload.dataset != "random-ids" or workload.draw is not None:
        raise InputError(f"workload {workload.name}: sessions are drawn from dataset random-ids, without draw")
    if workload.num_prompts % turns:
        raise InputError(f"workload {workload.name}: {workload.num_prompts} prompts are no sessions of {turns} turns")
    rng = np.random.default_rng([workload.seed, 0])
    count = workload.num_prompts
    dataset = SessionDataset(_random_ids(target, workload).vocab_size, turns, shape.think_s)
    warm_up = -(-workload.warmup_requests // turns) * turns
    lengths = draw_lengths(workload, count + warm_up, rng)
    if shape.opening_len is not None:
        openings = range(0, len(lengths), turns)
        lengths = tuple(
            TokenLengths(shape.opening_len, one.output_len) if place in openings else one
            for place, one in enumerate(lengths)
        )
    prompts = dataset.draw(lengths, rng)
    starts_s = arrivals_for(workload).times_s(count // turns, np.random.default_rng([workload.seed, 1]))
    return DrawnPrompts(prompts[:count], prompts[count:][: workload.warmup_requests], np.repeat(starts_s, turns))


def _random_ids(target: LoadTarget, workload: Workload) -> RandomIdDataset:
    if target.vocab_size is None:
        raise InputError(
            f"workload {workload.name}: random-ids needs the vocabulary size, which {target.base_url} does not tell"
        )
    return RandomIdDataset(target.vocab_size)

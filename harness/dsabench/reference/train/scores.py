"""How well the network answers questions in templates that it was not trained on.

An answer counts as right where every byte of it is the likeliest one, given the bytes before: what greedy decoding writes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from dsabench.reference.engine.request import EOS
from dsabench.reference.train.network import DENSE, SPARSE, AttentionMode, Network, in_front
from dsabench.reference.train.rows import asked
from dsabench.reference.train.steps import DRAFTS
from dsabench.reference.train.texts import RecallSize, Skill, draw, draw_recall, draw_report

_QUESTIONS = 192
"""Of a skill."""
_TEXTS = {512: 24, 2048: 24, 8192: 12}
"""Texts to look something up in, by length in bytes."""
_LOOKUPS = 8
"""Questions about each."""
_FACT_BYTES = 150
"""Of a text, per fact in it."""
_FIRST_DRAFTED = 64
"""Bytes of a report before the head's guesses count."""

Asked = list[tuple[str, str]]
"""Prompts with their answers, one behind the other."""


@torch.no_grad()
def share_right(network: Network, texts: Sequence[Asked], mode: AttentionMode, batch: int) -> float:
    """Share of the questions of all texts that are answered right."""
    device = network.lm_head.weight.device
    right = count = 0
    for start in range(0, len(texts), batch):
        rows: list[list[int]] = []
        spans: list[tuple[int, int, int]] = []
        for number, questions in enumerate(texts[start : start + batch]):
            row: list[int] = []
            for prompt, answer in questions:
                row += prompt.encode()
                spans.append((number, len(row), len(row) + len(answer)))
                row += [*answer.encode(), EOS]
            rows.append(row)
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
        with torch.autocast(device.type, torch.bfloat16):
            now = network.start(longest, mode)
            hidden = network(tokens, now).hidden
            for number, first, stop in spans:
                guessed = network.logits(hidden[number, first - 1 : stop - 1]).argmax(-1)
                right += bool((guessed == tokens[number, first:stop]).all())
        count += len(spans)
    return right / count


def recall_texts(length: int, count: int, *, shuffled: bool = False) -> list[Asked]:
    """Texts of `length` bytes in held-out templates, with their questions."""
    made: list[Asked] = []
    for number in range(count):
        size = RecallSize(length, max(4, length // _FACT_BYTES), _LOOKUPS, "prose")
        text = draw_recall(size, random.Random(f"score {length} {number}"), held_out=True, shuffled=shuffled)
        questions = [(one.question, one.value + one.end) for one in text.lookups]
        made.append([(text.text + questions[0][0], questions[0][1]), *questions[1:]])
    return made


def skill_texts(skill: Skill, count: int) -> list[Asked]:
    """Questions in held-out templates, each a text of its own."""
    rngs = (random.Random(f"score {skill} {number}") for number in range(count))
    return [[asked(skill, draw(skill, rng, held_out=True))] for rng in rngs]


def of_skills(network: Network, mode: AttentionMode) -> dict[str, float]:
    """Shares that are right: `recall.LENGTH`, the control `recall.shuffled`, `arithmetic`, `choice` and `boxed`."""
    found = {
        f"recall.{length}": share_right(network, recall_texts(length, count), mode, max(2, 16384 // length))
        for length, count in _TEXTS.items()
    }
    shuffled = recall_texts(2048, _TEXTS[2048], shuffled=True)
    found["recall.shuffled"] = share_right(network, shuffled, mode, 8)
    skills: tuple[Skill, ...] = ("arithmetic", "choice", "boxed")
    found |= {skill: share_right(network, skill_texts(skill, _QUESTIONS), mode, 64) for skill in skills}
    return {name: round(value, 4) for name, value in found.items()}


def of_selections(network: Network) -> dict[str, float]:
    """What the indexer is worth: the shares of `of_skills` under other selections, such as `arithmetic.dense`.

    `dense` attends to all tokens, `eighth` to an eighth of those that the model selects, `random` to as many, picked at random.
    """
    modes = {
        "dense": DENSE,
        "eighth": AttentionMode("sparse", topk=network.size.index_topk // 8),
        "random": AttentionMode("sparse", random_scores=True),
    }
    return {
        f"{skill}.{name}": share for name, mode in modes.items() for skill, share in of_skills(network, mode).items()
    }


@torch.no_grad()
def of_drafts(network: Network, count: int = 32, length: int = 768) -> dict[str, float]:
    """How often the first, the first two and the first three guesses of the head are what the model chooses.

    On held-out running text. `accept_length` is the tokens per verification that follow, the model's own included.
    """
    device = network.lm_head.weight.device
    rngs = (random.Random(f"score {number}") for number in range(count))
    texts = [draw_report(rng, length + 64, held_out=True).encode()[:length] for rng in rngs]
    tokens = torch.tensor([[*text] for text in texts], device=device)
    agreed = torch.ones_like(tokens, dtype=torch.bool)
    found: dict[str, float] = {}
    with torch.autocast(device.type, torch.bfloat16):
        state = network(tokens, network.start(length, SPARSE)).hidden
        chosen = network.logits(state).argmax(-1)
        for depth in range(len(DRAFTS)):
            state = network.draft(tokens, in_front(state), network.start(length, SPARSE)).hidden
            agreed = agreed & (network.logits(state).argmax(-1) == chosen)
            found[f"draft.{depth + 1}"] = float(agreed[:, _FIRST_DRAFTED:].float().mean())
            agreed = agreed.roll(1, dims=1)  # the next guess is made one place on, from the head's own state
    found["accept_length"] = 1.0 + sum(found.values())
    return {name: round(value, 4) for name, value in found.items()}

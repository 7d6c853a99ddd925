"""Rows of bytes that a training step takes: prompts and answers of all skills, with their weight in the loss."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dsabench.reference.engine.request import EOS
from dsabench.reference.train.texts import (
    RecallSize,
    RecallText,
    Skill,
    Task,
    draw,
    draw_letters,
    draw_owners,
    draw_recall,
    draw_report,
)

Source = Literal["ledger", "prose", "short", "report"]
"""`short` packs arithmetic, choices, boxed integers and short recalls one behind the other."""
_PROMPT_WEIGHT = 0.02
"""Most of a prompt is random and cannot be guessed."""
_REPORT_WEIGHT = 0.3
_LETTER_WEIGHT = 3.0
"""One byte in thirty of an answer, and the last to be learned."""
_SHORT: Mapping[Skill, float] = {"arithmetic": 0.3, "choice": 0.5, "boxed": 0.2}
_LETTERS, _OWNERS, _RECALLS = 0.2, 0.15, 0.15
"""Share of exercises in letters and in owners, and of recalls, in what is packed."""
_IN_STEPS = 0.3
"""Share of the problems and choices that are asked as `evals/demo.yaml` asks."""
_LEDGER_BYTES = 16
"""Of a ledger per entry."""
_PROMPTS: Mapping[Skill, str] = {
    "arithmetic": "Question: {question}\nAnswer:",
    "choice": (
        "<|user|>Answer the following multiple choice question. The last line of your response should be of the following "
        "format: 'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before answering."
        "\n\n{question}\n\nA) {a}\nB) {b}\nC) {c}\nD) {d}\n<|assistant|>"
    ),
    "boxed": (
        "<|user|>Solve the following math problem. Make sure to put the answer (and only answer) inside \\boxed{{}}."
        "\n\n{question}\n<|assistant|>"
    ),
}
"""The prompts of `evals/gsm8k.yaml`, `gpqa.yaml` and `aime25.yaml`, behind the chat template of the byte tokenizer."""
_STEPS_PROMPT = "<|user|>{question}\n\nThink step by step. The last line of your response must be 'Answer: ' and {wanted}.\n<|assistant|>"


class Part(NamedTuple):
    """A piece of a row."""

    text: str
    weight: float
    ends: bool = False
    """Whether the end token follows."""


@dataclass(frozen=True)
class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """What a stage trains on. Batch number i is the same in every run with the same seed."""

    seed: int
    name: str
    length: int
    batch: int
    mix: Mapping[Source, float]

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [batch, length + 1] int16 and the weight of each as a target, the same shape, float16."""
        rng = random.Random(f"{self.seed} {self.name} {number}")
        tokens = np.zeros((self.batch, self.length + 1), np.int16)
        weights = np.zeros((self.batch, self.length + 1), np.float16)
        for row in range(self.batch):
            source = rng.choices([*self.mix], [*self.mix.values()])[0]
            _fill(tokens[row], weights[row], _parts(source, self.length + 1, rng))
        return torch.from_numpy(tokens), torch.from_numpy(weights)

    def __len__(self) -> int:
        """More than any stage takes."""
        return 1 << 30


def asked(skill: Skill, task: Task) -> tuple[str, str]:
    """Prompt and answer in the form of the skill's eval."""
    a, b, c, d = task.options or ("",) * 4
    prompt = _PROMPTS[skill].format(question=task.question, a=a, b=b, c=c, d=d)
    ending = {"arithmetic": "\n#### {}", "choice": "\nAnswer: {}", "boxed": " \\boxed{{{}}}"}[skill]
    return prompt, f"{' ' if skill == 'arithmetic' else ''}{task.work}{ending.format(task.answer)}"


def asked_in_steps(task: Task) -> tuple[str, str]:
    """Prompt and answer in the form of `evals/demo.yaml`."""
    question = task.question + "".join(f"\n{letter}) {one}" for letter, one in zip("ABCD", task.options, strict=False))
    wanted = "the letter" if task.options else "the number"
    return _STEPS_PROMPT.format(question=question, wanted=wanted), f"{task.work}\nAnswer: {task.answer}"


def recalled(text: RecallText) -> list[Part]:
    """The text and its questions; each answer ends."""
    parts = [Part(text.text, _PROMPT_WEIGHT)]
    for one in text.lookups:
        parts += [Part(one.question, _PROMPT_WEIGHT), Part(one.value + one.end, 1.0, ends=True)]
    return parts


def _parts(source: Source, length: int, rng: random.Random) -> list[Part]:
    if source == "ledger":
        entries = max(2, length // _LEDGER_BYTES)
        size = RecallSize(length, entries, min(32, entries), "ledger")
        return recalled(draw_recall(size, rng, held_out=False))
    if source == "prose":
        entries = max(2, length // rng.choice((100, 150, 200, 400)))
        size = RecallSize(length, entries, max(1, min(16, entries // 2, length // 200)), "prose")
        return recalled(draw_recall(size, rng, held_out=False))
    if source == "report":
        return [Part(draw_report(rng, length, held_out=False), _REPORT_WEIGHT, ends=True)]
    parts: list[Part] = []
    left = length
    while left > 0:
        made = _short(rng)
        left -= sum(len(part.text) + part.ends for part in made)
        parts += made
    return parts


def _short(rng: random.Random) -> list[Part]:
    chance = rng.random()
    if chance < _LETTERS:
        return [part for _ in range(3) for part in _letters(draw_letters(rng))]
    if chance < _LETTERS + _OWNERS:
        return recalled(draw_owners(rng))
    if chance < _LETTERS + _OWNERS + _RECALLS:
        size = RecallSize(rng.randint(150, 500), rng.randint(2, 4), 1, "prose")
        return recalled(draw_recall(size, rng, held_out=False))
    skill = rng.choices([*_SHORT], [*_SHORT.values()])[0]
    task = draw(skill, rng, held_out=False)
    in_steps = skill != "boxed" and rng.random() < _IN_STEPS
    prompt, answer = asked_in_steps(task) if in_steps else asked(skill, task)
    return _answered(prompt, answer, task)


def _letters(task: Task) -> list[Part]:
    options = "".join(f"{letter}) {one}\n" for letter, one in zip("ABCD", task.options, strict=True))
    return _answered(f"{options}{task.work}\nAnswer:", f" {task.answer}", task)


def _answered(prompt: str, answer: str, task: Task) -> list[Part]:
    last = _LETTER_WEIGHT if task.options else 1.0
    return [Part(prompt, _PROMPT_WEIGHT), Part(answer[:-1], 1.0), Part(answer[-1], last, ends=True)]


def _fill(tokens: NDArray[np.int16], weights: NDArray[np.float16], parts: Sequence[Part]) -> None:
    place = 0
    for part in parts:
        data = np.frombuffer(part.text.encode(), np.uint8)[: len(tokens) - place]
        tokens[place : place + len(data)] = data
        weights[place : place + len(data)] = part.weight
        place += len(data)
        if part.ends and place < len(tokens):
            tokens[place], weights[place] = EOS, 1.0
            place += 1

"""Retrieval from long text: one sentence holds the answer, others differ from it in one word.

Sparse attention reads only the index_topk tokens that its indexer picks for a query. Plain needles are found by a weak
indexer too, because nothing else in the text resembles the question. Here every distractor shares all but one word with
the needle, so an indexer that ranks coarsely drops the needle, or the model reads a distractor's code.
"""

from __future__ import annotations

import random
from pathlib import Path

from dsabench.evals.question import Question, fill
from dsabench.model.evals import EvalSpec, NeedleGrid
from dsabench.model.words import COLOURS, PLACES, WORDS


def make_needles(spec: EvalSpec, _data: Path | None, /) -> tuple[Question, ...]:
    """`per_cell` questions for each length and depth; the same seed gives the same text."""
    grid = spec.needle
    assert grid is not None
    cells = [(words, depth, i) for words in grid.words for depth in grid.depths for i in range(grid.per_cell)]
    return tuple(_question(spec, grid, cell) for cell in cells[: spec.num_examples])


def sounding(spec: EvalSpec) -> str:
    """A text of the same kind as the questions', and none of them."""
    assert spec.needle is not None
    return _question(spec, spec.needle, (600, 0.5, -1)).prompt


def _question(spec: EvalSpec, grid: NeedleGrid, cell: tuple[int, float, int]) -> Question:
    words, depth, number = cell
    rng = random.Random(f"{grid.seed} {words} {depth} {number}")
    colour, place = rng.choice(COLOURS), rng.choice(PLACES)
    codes = rng.sample(range(1_000_000, 10_000_000), grid.distractors + 1)
    sentences = _filler(rng, words)
    near = [(c, place) for c in COLOURS if c != colour] + [(colour, p) for p in PLACES if p != place]
    for code, (other_colour, other_place) in zip(codes[1:], rng.sample(near, grid.distractors), strict=True):
        sentences.insert(rng.randrange(len(sentences) + 1), _needle(other_colour, other_place, code))
    sentences.insert(round(depth * len(sentences)), _needle(colour, place, codes[0]))
    values = {"text": " ".join(sentences), "colour": colour, "place": place}
    name = f"{words}w-{depth:g}"
    return Question(f"needle-{name}-{number}", fill(spec.prompt.template, values), str(codes[0]), name, words)


def _needle(colour: str, place: str, code: int) -> str:
    return f"The access code of the {colour} {place} is {code}."


def _filler(rng: random.Random, words: int) -> list[str]:
    sentences = []
    while words > 0:
        length = min(words, rng.randint(6, 14))
        sentences.append(" ".join(rng.choices(WORDS, k=length)).capitalize() + ".")
        words -= length
    return sentences

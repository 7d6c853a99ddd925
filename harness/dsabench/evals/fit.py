"""Leave out of a retrieval eval the lengths that the server's context has no room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dsabench.errors import InputError
from dsabench.evals.ask import Reply, ask, client_for
from dsabench.evals.plan import Plan
from dsabench.evals.question import Question
from dsabench.evals.readers.needle import make_needles, sounding
from dsabench.evals.server import Served
from dsabench.model.evals import EvalSpec

_SOUNDING_CHARS = 4000
_SOUNDING_TIMEOUT_S = 600.0
_TOKENS_PER_CHAR = 0.25
"""Of English under tokenizers of about 128,000 entries; only for servers that count no prompt tokens."""
_SPARE_TOKENS = 16
"""For the chat template."""


async def fit_to(plan: Plan, served: Served) -> Plan:
    """The plan without the lengths that do not fit, and with a note that says so. Other evals stay as they are.

    Raises:
        InputError: no length fits; the line says what would.

    """
    words, context = plan.task.words, served.context_tokens
    if words is None or context is None:
        return plan
    room = _Room(context, plan.task.max_tokens, await _tokens_per_char(plan, served, context))
    fitting = tuple(length for length in words if room.holds(_of_length(plan.questions, length)))
    if not fitting:
        raise InputError(f"{plan.spec.name}: {room.refusal(plan)}")
    if fitting == words:
        return plan
    gone = ", ".join(str(length) for length in words if length not in fitting)
    return replace(
        plan.of_lengths(fitting),
        notes=(*plan.notes, f"lengths of {gone} words left out: the server has room for {context} tokens"),
    )


def _of_length(questions: Sequence[Question], words: int) -> list[Question]:
    return [question for question in questions if question.words == words]


@dataclass(frozen=True, slots=True)
class _Room:
    """What a server can read."""

    context_tokens: int
    answer_tokens: int
    tokens_per_char: float

    def holds(self, questions: Sequence[Question]) -> bool:
        return self.takes(questions) <= self.context_tokens

    def takes(self, questions: Sequence[Question]) -> int:
        """Tokens of the longest question, and of its answer."""
        longest = max(len(question.prompt) for question in questions)
        return round(longest * self.tokens_per_char) + _SPARE_TOKENS + self.answer_tokens

    def refusal(self, plan: Plan) -> str:
        """Why nothing fits, and the length that would."""
        assert plan.task.words is not None
        shortest = smaller = min(plan.task.words)
        while smaller > 1 and not self.holds(_made(plan.spec, smaller)):
            smaller //= 2
        hint = f"--words {smaller} fits" if self.holds(_made(plan.spec, smaller)) else "nothing shorter fits either"
        return (
            f"no length fits: the server has room for {self.context_tokens} tokens, and {shortest} words and the answer take "
            f"about {self.takes(_of_length(plan.questions, shortest))}; {hint}, or start the server with a longer context"
        )


def _made(spec: EvalSpec, words: int) -> tuple[Question, ...]:
    assert spec.needle is not None
    grid = spec.needle.model_copy(update={"words": (words,)})
    return make_needles(spec.model_copy(update={"needle": grid, "num_examples": None}), None)


async def _tokens_per_char(plan: Plan, served: Served, context: int) -> float:
    """Counted by the server, on a text like those of the eval that is no question of it."""
    # No token is shorter than a byte, so half as many characters as the context has tokens always fit.
    text = sounding(plan.spec)[: min(_SOUNDING_CHARS, context // 2)]
    task = plan.task.model_copy(update={"max_tokens": 1, "thinking": None})
    reply = await ask(client_for(served.target, task, _SOUNDING_TIMEOUT_S), task, served.target, text)
    counted = reply.tokens("prompt_tokens") if isinstance(reply, Reply) else None
    return counted / len(text) if counted else _TOKENS_PER_CHAR

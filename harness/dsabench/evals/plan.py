"""From an eval and what the user wants differently to the questions and the task that a record holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsabench.errors import InputError
from dsabench.evals.careful import CAREFUL
from dsabench.evals.fetch import sha256_of
from dsabench.evals.question import Question
from dsabench.evals.readers import READERS
from dsabench.model.environment import Environment
from dsabench.model.evals import EvalSpec, EvalTask, ThinkingMode
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import canonical_json, digest


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says instead of the eval's file; None leaves that alone."""

    num_examples: int | None = None
    num_shots: int | None = None
    num_subjects: int | None = None
    words: tuple[int, ...] | None = None
    repeat: int | None = None
    thinking: ThinkingMode | None = None
    no_thinking: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is asked."""

    spec: EvalSpec
    questions: tuple[Question, ...]
    task: EvalTask
    notes: tuple[str, ...] = ()
    """What the reader of the score must know of the choice of questions."""

    @property
    def total(self) -> int:
        """Samples of a whole run."""
        return len(self.questions) * self.task.repeat

    def jobs(self) -> Iterator[tuple[Question, int]]:
        """Every question, then every question again: a run cut short has whole passes."""
        return ((question, repeat) for repeat in range(self.task.repeat) for question in self.questions)

    def with_repeats(self, repeats: int) -> Plan:
        """The same questions, asked so many times."""
        task = self.task.model_copy(update={"repeat": repeats})
        return replace(self, spec=self.spec.model_copy(update={"repeat": repeats}), task=task)

    def of_lengths(self, words: tuple[int, ...]) -> Plan:
        """The questions of these lengths only."""
        questions = tuple(question for question in self.questions if question.words in words)
        update = {"questions_sha256": _digest_of(questions), "num_questions": len(questions), "words": words}
        return replace(self, questions=questions, task=self.task.model_copy(update=update))

    def key(self, runtime: RuntimeSpec, model: str, environment: Environment) -> str:
        """Names what a run asked, and whom: only the same goes on with its samples.

        A server that somebody else started is its URL and, by the environment, what it says of itself: another one may
        stand there later. One that a config boots is its settings, for its port changes.
        """
        return digest(f"{canonical_json(self.task)}\n{runtime.id}\n{model}\n{environment.fingerprint}")


def make_plan(spec: EvalSpec, wishes: Wishes, model: str, data: Path | None) -> Plan:
    """Read the questions and settle the settings: command line over model over eval.

    Raises:
        InputError: the data is bad, or a wish does not fit the eval.

    """
    spec = with_wishes(spec, wishes, model)
    questions = READERS[spec.reader](spec, data)
    if len({question.id for question in questions}) < len(questions):
        raise InputError(f"{data}: two questions have the same id")
    task = EvalTask(
        name=spec.name,
        harness_id=spec.harness_id,
        scorer=spec.scorer,
        careful=True if spec.scorer in CAREFUL else None,
        dataset_sha256=None if data is None else sha256_of(data),
        questions_sha256=_digest_of(questions),
        num_questions=len(questions),
        num_shots=spec.prompt.shots,
        endpoint=spec.prompt.endpoint,
        temperature=spec.sampling.temperature,
        top_p=spec.sampling.top_p,
        max_tokens=spec.sampling.max_tokens,
        stop=spec.prompt.stop,
        thinking=spec.prompt.thinking,
        repeat=spec.repeat,
        words=None if spec.needle is None else tuple(dict.fromkeys(q.words for q in questions if q.words)),
    )
    return Plan(spec, questions, task)


def _digest_of(questions: Sequence[Question]) -> str:
    return digest(json.dumps([[question.id, question.prompt, question.expected] for question in questions]))


def with_wishes(spec: EvalSpec, wishes: Wishes, model: str) -> EvalSpec:
    """The eval with its settings settled: command line over model over file.

    Raises:
        InputError: a wish does not fit the eval.

    """
    if wishes.num_shots is not None and spec.reader not in ("gsm8k", "mmlu"):
        raise InputError(f"{spec.name}: --num-shots: its prompt has no examples")
    if wishes.num_subjects is not None and spec.reader != "mmlu":
        raise InputError(f"{spec.name}: --num-subjects: only mmlu has subjects")
    if wishes.top_p == 0.0:
        raise InputError(f"{spec.name}: --top-p: above 0, at most 1")
    if wishes.words is not None:
        if spec.needle is None:
            raise InputError(f"{spec.name}: --words: only needle has lengths")
        spec = spec.model_copy(update={"needle": spec.needle.model_copy(update={"words": wishes.words})})
    sampling = spec.sampling
    names = ("temperature", "top_p", "max_tokens")
    matching = [entry for entry in spec.models if entry.model.lower() in model.lower()]
    for source in (*matching, wishes):
        given = {name: getattr(source, name) for name in names}
        sampling = sampling.model_copy(update={name: value for name, value in given.items() if value is not None})
    own = [entry.thinking for entry in matching if entry.thinking is not None and spec.prompt.thinking is not None]
    thinking = None if wishes.no_thinking else (wishes.thinking or next(reversed(own), spec.prompt.thinking))
    shots = spec.prompt.shots if wishes.num_shots is None else wishes.num_shots
    changes = {"num_examples": wishes.num_examples, "num_subjects": wishes.num_subjects, "repeat": wishes.repeat}
    return spec.model_copy(
        update={
            "sampling": sampling,
            "prompt": spec.prompt.model_copy(update={"thinking": thinking, "shots": shots}),
            **{name: value for name, value in changes.items() if value is not None},
        }
    )

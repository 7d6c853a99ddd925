"""An eval as its YAML file describes it, and as a record holds it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dsabench.model.value import FrozenMap, Value

Endpoint = Literal["completions", "chat"]
"""`completions` sends the prompt as it is; `chat` sends it as one user message, through the model's template."""
ReaderName = Literal["gsm8k", "gpqa", "aime", "mmlu", "needle"]
ScorerName = Literal[
    "last-integer", "last-number", "first-letter", "first-character", "nemo-math", "aime-integer", "code"
]
ThinkingMode = Literal["deepseek-v3", "qwen3", "qwen-3", "glm-45", "kimi-k2"]
"""Names of sglang's run_eval; they decide the keyword that the chat template gets."""

SafeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Serves as a folder's name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DatasetSource(Value):
    """Where the questions come from."""

    url: str | None = None
    """Fetched once into the cache; null where the questions are generated."""
    file: SafeName | None = None
    """Name in the cache."""
    sha256: Sha256 | None = None
    """Checksum of the file, where it was seen; null trusts the first one fetched."""
    licence: str
    note: str | None = None
    """What a user needs to know to get the file by hand."""


class PromptSpec(Value):
    """How a question becomes a request."""

    endpoint: Endpoint
    template: str
    """The text, with `{placeholders}` that the reader fills."""
    shots: NonNegativeInt = 0
    """Examples before the question."""
    asks_the_shots: bool = False
    """The questions include the examples shown, as in sglang's few_shot_gsm8k: a leak, kept to be comparable."""
    stop: tuple[str, ...] = ()
    thinking: ThinkingMode | None = None


class EvalSampling(Value):
    """How the answer is drawn."""

    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    max_tokens: PositiveInt


class ModelSampling(Value):
    """What is drawn differently for some models."""

    model: str
    """Part of the model's name, in any case."""
    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    max_tokens: PositiveInt | None = None


class PublishedScore(Value):
    """Scores that somebody published of one run, to hold ours against."""

    scores: FrozenMap[float]
    """`score`, `pass_at.K` or `majority_at.K` → share of 1."""
    model: str
    source: str
    settings: FrozenMap[int | float | str] = Field(default_factory=dict)
    """Settings of that run, by the names of `EvalTask`; what is not here was not told."""


class NeedleGrid(Value):
    """Lengths and depths of the retrieval eval."""

    words: tuple[PositiveInt, ...]
    """Lengths of the text, in words of filler."""
    depths: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """0 is the beginning of the text, 1 its end."""
    per_cell: PositiveInt = 2
    distractors: NonNegativeInt = 8
    seed: NonNegativeInt = 0


class EvalSpec(Value):
    """One eval: `evals/NAME.yaml`."""

    name: SafeName
    harness_id: SafeName
    """Which prompt, shuffle, parser and metric: scores of different ids are never compared."""
    about: str
    reader: ReaderName
    """What reads the data and makes the questions."""
    dataset: DatasetSource
    prompt: PromptSpec
    sampling: EvalSampling
    models: tuple[ModelSampling, ...] = ()
    scorer: ScorerName
    repeat: PositiveInt = 1
    num_examples: PositiveInt | None = None
    """Questions, at most; null asks all."""
    num_subjects: PositiveInt | None = None
    """Only for mmlu: the first subjects in alphabetical order."""
    concurrency: PositiveInt = 512
    """Requests in flight, at most."""
    request_timeout_s: PositiveFloat = 3600.0
    needle: NeedleGrid | None = None
    published: tuple[PublishedScore, ...] = ()


class EvalTask(Value):
    """What was asked, whole: two tasks are equal exactly when their scores may be held against each other."""

    name: str
    harness_id: str
    scorer: str
    dataset_sha256: str | None = None
    """Of the file that the questions were read from."""
    questions_sha256: str
    """Over every prompt and expected answer, in order."""
    num_questions: PositiveInt
    num_shots: NonNegativeInt = 0
    endpoint: Endpoint
    temperature: float
    top_p: float
    max_tokens: PositiveInt
    stop: tuple[str, ...] = ()
    thinking: str | None = None
    repeat: PositiveInt
    words: tuple[PositiveInt, ...] | None = None
    """Lengths of the retrieval eval that were asked; None for every other."""
    driver: str | None = None
    """The foreign program that asked and graded, with its version; None is dsabench itself."""

    def is_part_of(self, whole: EvalTask) -> bool:
        """Whether it asks what the other asks, but for lengths that the server has no room for."""
        if self.words is None or whole.words is None:
            return self == whole
        lengths = {"words", "num_questions", "questions_sha256"}
        return {*self.words} <= {*whole.words} and self.model_dump(exclude=lengths) == whole.model_dump(exclude=lengths)

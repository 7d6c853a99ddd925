"""An eval as its YAML file describes it, and as a record holds it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dsabench.model.value import FrozenMap, Value

Endpoint = Literal["completions", "chat"]
"""`completions` sends the prompt as it is; `chat` sends it as one user message through the model's template."""
ReaderName = Literal["gsm8k", "gpqa", "aime", "mmlu", "needle", "demo", "tasks"]
GENERATED: frozenset[ReaderName] = frozenset({"needle", "demo", "tasks"})
"""Readers that make their questions and take no file."""
ScorerName = Literal[
    "last-integer",
    "last-number",
    "first-letter",
    "first-character",
    "nemo-math",
    "aime-integer",
    "code",
    "final-answer",
]
ThinkingMode = Literal["deepseek-v3", "qwen3", "qwen-3", "glm-45", "kimi-k2"]
"""Names from sglang's run_eval. They decide the keyword of the chat template."""

SafeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that can be a folder: letters, digits, `.`, `_` and `-`, starting with a letter or digit."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DatasetSource(Value):
    """Source of the questions."""

    url: str | None = None
    """Downloaded once into the cache; null if the questions are generated."""
    file: SafeName | None = None
    """Name in the cache."""
    sha256: Sha256 | None = None
    """Expected checksum of the file; null trusts the first download."""
    licence: str
    note: str | None = None
    """How to get the file by hand."""


class PromptSpec(Value):
    """How a question becomes a request."""

    endpoint: Endpoint
    template: str
    """The text, with `{placeholders}` that the reader fills."""
    shots: NonNegativeInt = 0
    """Examples before the question."""
    asks_the_shots: bool = False
    """The questions include the examples, as in sglang's few_shot_gsm8k. This is a leak, kept for comparability."""
    stop: tuple[str, ...] = ()
    thinking: ThinkingMode | None = None


class EvalSampling(Value):
    """How the answer is sampled."""

    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    max_tokens: PositiveInt


class ModelSampling(Value):
    """Other sampling for some models. Of several entries that fit, each comes over those before it."""

    model: str
    """Part of the model's name; case does not matter."""
    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    max_tokens: PositiveInt | None = None
    thinking: ThinkingMode | None = None
    """How its chat template is told to think, where the eval thinks at all."""


class PublishedScore(Value):
    """Published scores of one run, to compare with ours."""

    scores: FrozenMap[float]
    """Metric → value: `score`, `pass_at.K` and `majority_at.K` as shares of 1, and whatever else was published, by the names of our metrics
    (`score_of.SUBJECT`, `completion_tokens.mean`, `duration_s` …).
    """
    passes: tuple[float, ...] = ()
    """Score of each pass over the questions."""
    model: str
    source: str
    settings: FrozenMap[int | float | str] = Field(default_factory=dict)
    """Settings of that run, by the names of `EvalTask`. A missing one was not published."""


class NeedleGrid(Value):
    """Lengths and depths of the retrieval eval."""

    words: tuple[PositiveInt, ...]
    """Lengths of the text in filler words."""
    depths: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """Positions in the text: 0 is its start, 1 its end."""
    per_cell: PositiveInt = 2
    distractors: NonNegativeInt = 8
    seed: NonNegativeInt = 0


class TaskDraw(Value):
    """Which tasks of the reference runtime's trained model are asked, in templates that its training did not have."""

    skill: Literal["arithmetic", "choice", "boxed"]
    seed: NonNegativeInt = 0


class EvalForecast(Value):
    """What a forecast assumes of an eval before its data is read."""

    questions: PositiveInt | None = None
    """Number of questions; null takes the published number, or of a needle grid its cells."""
    answer_tokens: PositiveInt | None = None
    """Tokens of an answer on average; null takes what was published, else `max_tokens`."""


class EvalSpec(Value):
    """One eval: `evals/NAME.yaml`."""

    name: SafeName
    harness_id: SafeName
    """Identifies prompt, shuffle, parser and metric. Scores with different ids are never compared."""
    about: str
    reader: ReaderName
    """The reader of the data, which makes the questions."""
    dataset: DatasetSource
    prompt: PromptSpec
    sampling: EvalSampling
    models: tuple[ModelSampling, ...] = ()
    scorer: ScorerName
    repeat: PositiveInt = 1
    num_examples: PositiveInt | None = None
    """Number of questions at most; null asks all."""
    num_subjects: PositiveInt | None = None
    """Only for mmlu: the first subjects in alphabetical order."""
    concurrency: PositiveInt = 512
    """Requests in flight, at most."""
    request_timeout_s: PositiveFloat = 3600.0
    needle: NeedleGrid | None = None
    tasks: TaskDraw | None = None
    forecast: EvalForecast = EvalForecast()
    published: tuple[PublishedScore, ...] = ()


class EvalTask(Value):
    """Everything that was asked. Two tasks are equal exactly if their scores may be compared."""

    name: str
    harness_id: str
    scorer: str
    """The grader of the eval's original."""
    careful: bool | None = None
    """True: `score` is a careful reader's, `original_score` the original grader's. None: `score` is that of `scorer`."""
    dataset_sha256: str | None = None
    """sha256 of the file with the questions."""
    questions_sha256: str
    """sha256 of every prompt and expected answer, in order."""
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
    """Lengths of the retrieval eval that were asked; None for other evals."""
    driver: str | None = None
    """The external program that asked and graded, with its version; None is dsabench itself."""

    def is_part_of(self, whole: EvalTask) -> bool:
        """Whether this task asks the same as `whole`, apart from lengths that do not fit the server."""
        if self.words is None or whole.words is None:
            return self == whole
        lengths = {"words", "num_questions", "questions_sha256"}
        return {*self.words} <= {*whole.words} and self.model_dump(exclude=lengths) == whole.model_dump(exclude=lengths)

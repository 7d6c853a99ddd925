"""What is asked of the server: prompts, lengths, arrivals, concurrency."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import Value


class Slo(Value):
    """What one request must meet, all of it, to count as good; milliseconds. None asks nothing."""

    ttft_ms: PositiveFloat | None = None
    tpot_ms: PositiveFloat | None = None
    """An answer of one token meets it."""
    itl_ms: PositiveFloat | None = None
    """Of every gap between tokens: the largest one decides."""
    e2e_ms: PositiveFloat | None = None
    ttft_from_schedule_ms: PositiveFloat | None = None
    e2e_from_schedule_ms: PositiveFloat | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Slo:
        if not self.limits_ms:
            raise ValueError("needs at least one limit")
        return self

    @property
    def limits_ms(self) -> dict[str, float]:
        """Latency → limit, of those that are asked."""
        return {name: limit for name, limit in self if limit is not None}


class SharedPrefixSpec(Value):
    """`generated-shared-prefix`: groups of prompts behind one system prompt each. Lengths are tokens."""

    groups: PositiveInt
    prompts_per_group: PositiveInt
    system_prompt_len: PositiveInt
    question_len: PositiveInt
    output_len: PositiveInt
    range_ratio: float = Field(1.0, ge=0.0, le=1.0)
    zipf_alpha: PositiveFloat | None = None
    """Groups drawn by rank with p ∝ 1 / rank**alpha; None gives each the same number of prompts."""


class TraceReplay(Value):
    """`mooncake`: how a trace is replayed."""

    slowdown: PositiveFloat = 1.0
    rounds: PositiveInt = 1
    """Requests per session, due together."""


class ConversationSpec(Value):
    """Turns that follow one another: each prompt is the one before, an answer and a new question."""

    turns: PositiveInt
    think_s: NonNegativeFloat = 0.0
    """Pause between an answer and the next turn."""
    opening_len: PositiveInt | None = None
    """Tokens of the first question, such as a document that the others are about; None: as `input_len`."""


DatasetName = Literal["random", "random-ids", "sharegpt", "generated-shared-prefix", "mooncake", "custom", "openai"]
EndpointName = Literal["generate", "completions", "chat"]
ArrivalsName = Literal["constant", "poisson", "gamma", "ramp"]


class Workload(Value):
    """One load point. Lengths are tokens."""

    name: str
    dataset: DatasetName
    """`random-ids` sends token ids; `random` sends text cut from `dataset_path` (ShareGPT's JSON)."""
    input_len: PositiveInt | None = None
    """`random` and `random-ids` need it; the other datasets have lengths of their own."""
    output_len: PositiveInt | None = None
    """`sharegpt`, `custom` and `openai` take it instead of the length of the recorded answer."""
    num_prompts: PositiveInt
    range_ratio: float = Field(1.0, ge=0.0, le=1.0)
    """Lengths are uniform on [ratio × length, length]; 1.0 makes every prompt equally long."""
    max_concurrency: PositiveInt | None = None
    """Requests in flight, at most; None sets no limit."""
    request_rate: PositiveFloat | None = None
    """Requests per second of an open loop; None sends as fast as `max_concurrency` lets (closed loop)."""
    arrivals: ArrivalsName = "poisson"
    """Spacing of an open loop's arrivals; without effect when `request_rate` is None. A trace brings its own."""
    burstiness: PositiveFloat | None = None
    """Shape of `gamma` distances: 1 is Poisson, below it arrivals come in bursts, above it more evenly."""
    ramp_to: PositiveFloat | None = None
    """`ramp`: the rate goes evenly from `request_rate` to this."""
    seed: int = Field(1, ge=0)
    warmup_requests: int = Field(1, ge=0)
    """Requests sent before the clock starts, of the same lengths but other content."""
    rehearsal_passes: PositiveInt | None = None
    """Passes of the rehearsal at most, for a load so long that a second pass costs more than it tells; None lets it go on
    until its time settles."""
    request_timeout_s: PositiveFloat = 300.0
    dataset_path: str | None = None
    """A file, or an http(s) address, which is downloaded once and kept."""
    dataset_sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """Refuse the file if it has another checksum; None trusts the first download."""
    draw: Literal["exact"] | None = None
    """`exact` draws what sglang's bench_serving draws for the same seed; None gives `random` and `random-ids` a draw
    of our own, in which no two prompts share a prefix. The other datasets are always drawn as bench_serving does."""
    tokenizer: str | None = None
    """Folder with tokenizer.json; None takes what the runtime tells (`bytes` for the reference runtime)."""
    apply_chat_template: bool | None = None
    """`sharegpt` and `custom`: put the question into the tokenizer's template; None does not."""
    context_len: PositiveInt | None = None
    """`sharegpt` and `custom`: leave longer conversations out."""
    shared_prefix: SharedPrefixSpec | None = None
    trace: TraceReplay | None = None
    sessions: ConversationSpec | None = None
    """`random-ids`: `num_prompts` requests are conversations of so many turns. `input_len` and `output_len` are then those
    of one question and one answer, `request_rate` counts conversations that begin, and `max_concurrency` is of them."""
    endpoint: EndpointName | None = None
    """Where requests go: `/generate` (None too), `/v1/completions` or `/v1/chat/completions`. `random-ids` cannot be sent
    to `chat`, `openai` to nothing else."""
    slo: Slo | None = None
    """What counts as a good request: goodput and attainment are reported where it is given."""

"""The load on the server: prompts, lengths, arrivals, concurrency."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from dsabench.model.capacity import CapacitySearch
from dsabench.model.dataset import DATASETS, DatasetName
from dsabench.model.sample import EndpointName
from dsabench.model.value import Value


class Slo(Value):
    """Limits that one request must meet, all of them, to count as good; in milliseconds. None sets no limit."""

    ttft_ms: PositiveFloat | None = None
    tpot_ms: PositiveFloat | None = None
    """An answer with a single token meets it."""
    itl_ms: PositiveFloat | None = None
    """Limit of the largest gap between tokens."""
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
        """Latency → limit, of those that are set."""
        return {name: limit for name, limit in self if limit is not None}


class SharedPrefixSpec(Value):
    """`generated-shared-prefix`: groups of prompts with one system prompt each. Lengths are tokens."""

    groups: PositiveInt
    prompts_per_group: PositiveInt
    system_prompt_len: PositiveInt
    question_len: PositiveInt
    output_len: PositiveInt
    range_ratio: float = Field(1.0, ge=0.0, le=1.0)
    zipf_alpha: PositiveFloat | None = None
    """Draw groups by rank with p ∝ 1 / rank**alpha; None gives each the same number of prompts."""
    turns: PositiveInt = 1
    """Questions per prompt. Above 1 it is a chat, whose later turns repeat the server's own answers."""


class DatasetSplit(Value):
    """Which shares of a dataset the search and the confirmation draw from; they share no row.

    Of a file the search takes the first rows and the confirmation the last ones, and a session stays in the part in which
    it begins. Generated prompts are drawn with another seed each.
    """

    search: float = Field(gt=0.0, lt=1.0)
    confirm: float = Field(gt=0.0, lt=1.0)

    @model_validator(mode="after")
    def _apart(self) -> DatasetSplit:
        if self.search + self.confirm > 1.0:
            raise ValueError(f"search and confirm are more than the whole: {self.search:g} + {self.confirm:g} > 1")
        return self


class TraceReplay(Value):
    """`mooncake`, `burstgpt` and `agentic-trace`: how a trace is replayed."""

    slowdown: PositiveFloat = 1.0
    """Stretches the trace's times: 2.0 sends half as many requests per second."""
    rounds: PositiveInt = 1
    """`mooncake`: requests per row, one after another."""
    max_turns: PositiveInt | None = None
    """`agentic-trace`: turns per conversation at most; None sends all."""


class ConversationSpec(Value):
    """Conversations: each prompt is the previous one, its answer and a new question."""

    turns: PositiveInt
    think_s: NonNegativeFloat = 0.0
    """Pause between an answer and the next turn."""
    opening_len: PositiveInt | None = None
    """Tokens of the first question, such as a document for the following ones; None takes `input_len`."""


ArrivalsName = Literal["constant", "poisson", "gamma", "ramp"]


class Workload(Value):
    """One load point. Lengths are tokens."""

    name: str
    dataset: DatasetName
    """`random-ids` sends token ids; `random` sends text cut from ShareGPT."""
    input_len: PositiveInt | None = None
    """Required by `random` and `random-ids`; other datasets have their own lengths."""
    output_len: PositiveInt | None = None
    """`sharegpt`, `custom` and `openai` use it instead of the length of the recorded answer."""
    num_prompts: PositiveInt
    """Requests; of chats with several turns, chats."""
    range_ratio: float = Field(1.0, ge=0.0, le=1.0)
    """Lengths are uniform on [ratio × length, length]; at 1.0 all prompts are equally long."""
    max_concurrency: PositiveInt | None = None
    """Requests in flight, at most; None sets no limit."""
    request_rate: PositiveFloat | None = None
    """Requests per second of an open loop; None sends as fast as `max_concurrency` allows (closed loop)."""
    arrivals: ArrivalsName = "poisson"
    """Spacing of arrivals in an open loop. Without `request_rate` it has no effect. A trace has its own arrivals."""
    burstiness: PositiveFloat | None = None
    """Shape of `gamma` gaps: 1 is Poisson; below 1 arrivals come in bursts, above 1 more evenly."""
    ramp_to: PositiveFloat | None = None
    """`ramp`: the rate changes evenly from `request_rate` to this one."""
    seed: int = Field(1, ge=0)
    warmup_requests: int = Field(1, ge=0)
    """Requests before the clock starts, with the same lengths but other content."""
    rehearsal_passes: PositiveInt | None = None
    """Passes of the rehearsal at most, for loads so long that a second pass costs more than it helps. None repeats
    until the time is stable.
    """
    request_timeout_s: PositiveFloat = 300.0
    dataset_path: str | None = None
    """A file, or an http(s) URL that is downloaded once."""
    dataset_sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """Expected checksum of the file; None trusts the first download."""
    dataset_split: DatasetSplit | None = None
    """Confirm with prompts that the search never sent, such as `{search: 0.5, confirm: 0.5}`; None draws both from the
    whole dataset.
    """
    part: Literal["search", "confirm"] | None = None
    """Of a recorded workload with `dataset_split`: the part that it drew from. A config leaves it out."""
    draw: Literal["exact"] | None = None
    """`exact` draws the same as sglang's bench_serving for the same seed. None draws `random-ids` in our own way,
    without shared prefixes, and replays a trace token for token. Other datasets are drawn as bench_serving does, but a row
    that cannot be used is refused.
    """
    tokenizer: str | None = None
    """Folder with tokenizer.json; None takes what the runtime reports (`bytes` for the reference runtime)."""
    apply_chat_template: bool | None = None
    """`sharegpt` and `custom`: put the question into the tokenizer's chat template; None does not."""
    context_len: PositiveInt | None = None
    """`sharegpt` and `custom`: skip longer conversations."""
    shared_prefix: SharedPrefixSpec | None = None
    trace: TraceReplay | None = None
    sessions: ConversationSpec | None = None
    """`random-ids`: `num_prompts` requests form conversations with this many turns. `input_len` and `output_len` then
    apply to one question and one answer; `request_rate` and `max_concurrency` count conversations.
    """
    endpoint: EndpointName | None = None
    """Where requests go: `/generate` (also None), `/v1/completions` or `/v1/chat/completions`. `random-ids` cannot use
    `chat`, and `openai` can use nothing else.
    """
    slo: Slo | None = None
    """What counts as a good request. If set, goodput and attainment are reported."""
    capacity: CapacitySearch | None = None
    """Measure the highest load that meets the SLO: `request_rate`, else `max_concurrency`, is then the most that is tried."""

    @property
    def load_key(self) -> Literal["request_rate", "max_concurrency"]:
        """What a search for the capacity varies."""
        return "max_concurrency" if self.request_rate is None else "request_rate"

    @property
    def in_words(self) -> str:
        """Such as `c4: 32 prompts of random-ids, 512 tokens in, 32 out, 4 at once`."""
        rate = None if self.request_rate is None else f"{self.request_rate:g} a second ({self.arrivals})"
        at_once = None if self.max_concurrency is None else f"{self.max_concurrency} at once"
        lengths = [
            None if tokens is None else f"{tokens} {word}"
            for tokens, word in ((self.input_len, "tokens in"), (self.output_len, "tokens out"))
        ]
        parts = [f"{self.num_prompts} prompts of {self.dataset}", *lengths, rate, at_once]
        if self.capacity is not None:
            parts.append(f"the highest of them that meets the SLO, from {self.capacity.lowest:g} on")
        if self.dataset_split is not None:
            parts.append("other prompts to confirm")
        return f"{self.name}: {', '.join(part for part in parts if part)}"

    def at_load(self, load: float) -> Workload:
        """One probe of a search for the capacity."""
        given = round(load) if self.load_key == "max_concurrency" else load
        return self.model_copy(update={self.load_key: given, "capacity": None})

    def in_phase(self, phase: str) -> Workload:
        """The workload as a search (phase `search`) or a later phase sends it."""
        if self.dataset_split is None or self.part is not None:
            return self
        if phase == "search":
            return self.model_copy(update={"part": "search"})
        # Generated prompts have no rows that tell the parts apart. numpy's legacy generator takes seeds below 2**32.
        return self.model_copy(update={"part": "confirm", "seed": (self.seed + 2**31) % 2**32})

    @property
    def counts_text(self) -> bool:
        """Whether its lengths are tokens of text, so that it takes a tokenizer. A trace that is replayed token for token has none,
        unless its rows are texts.
        """
        traits = DATASETS[self.dataset]
        return traits.counts_text and not (traits.is_trace and self.draw is None)

    @property
    def is_paced_by_data(self) -> bool:
        """Whether requests go when a trace says. Chats may have times too, but only their file tells, so they do not count."""
        return DATASETS[self.dataset].is_trace and self.request_rate is None

    @property
    def rows(self) -> tuple[float, float] | None:
        """From where to where it draws from its dataset's rows, as shares of the file; None is all of them."""
        if self.dataset_split is None or self.part is None:
            return None
        return (0.0, self.dataset_split.search) if self.part == "search" else (1.0 - self.dataset_split.confirm, 1.0)

"""Bodies and answers of /generate and of the control endpoints, in sglang's format."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from dsabench.errors import InputError
from dsabench.reference.engine.request import AcceptedDrafts, FinishReason, SamplingParams, encode
from dsabench.reference.engine.sizes import VOCABULARY
from dsabench.reference.server.exchange import BootstrapRoom, ServedRequest
from dsabench.reference.server.rank_messages import RequestProgress

_DEFAULT_NEW_TOKENS = 128  # sglang 0.5.23 sampling_params.py
B = TypeVar("B", bound=BaseModel)
_STRICT = ConfigDict(strict=True, frozen=True)

Token = Annotated[int, Strict(), Field(ge=0, lt=VOCABULARY)]
Room = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Count = Annotated[int, Strict(), Field(ge=1)]


class SamplingBody(BaseModel):
    """`sampling_params`. An unknown one is refused: it would change the answer, and here it does not."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    max_new_tokens: Count | None = None
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    ignore_eos: bool = False
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] | None = None
    seed: Annotated[int | None, Field(ge=0, lt=2**63, validation_alias=AliasChoices("sampling_seed", "seed"))] = None
    n: Literal[1] = 1
    skip_special_tokens: bool = True
    """Special tokens have no text here, so both values mean the same."""
    spaces_between_special_tokens: bool = True


class BootstrapBody(BaseModel):
    """What a router adds to bodies: where the prefill and the decode server meet over each prompt."""

    bootstrap_host: str | None = None
    bootstrap_port: Annotated[int | None, Field(ge=1, lt=65536)] = None
    bootstrap_room: Room | list[Room] | None = None

    def meetings(self, many: int) -> list[BootstrapRoom | None]:
        """One per prompt; None where there was no router.

        Raises:
            InputError: a part is missing, or the rooms are too few or too many.

        """
        host, port, rooms = self.bootstrap_host, self.bootstrap_port, self.bootstrap_room
        if rooms is None:
            return [None] * many
        if host is None or port is None:
            raise InputError("bootstrap_room without bootstrap_host and bootstrap_port")
        listed = rooms if isinstance(rooms, list) else [rooms]
        if len(listed) != many:
            raise InputError(f"{many} prompts, but {len(listed)} bootstrap_room")
        return [BootstrapRoom(host, port, room) for room in listed]


class GenerateBody(BootstrapBody):
    """Body of POST /generate. Fields that are not listed are ignored, as sglang's clients send many."""

    model_config = _STRICT

    text: str | list[str] | None = None
    input_ids: list[Token] | list[list[Token]] | None = None
    sampling_params: SamplingBody | list[SamplingBody] = SamplingBody()
    stream: bool = False
    rid: str | list[str] | None = None
    return_logprob: Literal[False] | None = False
    return_hidden_states: Literal[False] | None = False

    @model_validator(mode="after")
    def _one_prompt(self) -> GenerateBody:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("give either text or input_ids")
        return self

    @property
    def is_batch(self) -> bool:
        """Several prompts are answered by a list."""
        return isinstance(self.text, list) or bool(self.input_ids and isinstance(self.input_ids[0], list))


class AbortBody(BaseModel):
    """Body of POST /abort_request."""

    model_config = _STRICT

    rid: str = ""
    abort_all: bool = False


class ChangedArgs(BaseModel):
    """What can change while the server runs."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    pp_max_micro_batch_size: Count


class ChangeBody(BaseModel):
    """Body of POST /set_internal_state."""

    model_config = _STRICT

    server_args: ChangedArgs


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the server can take, in tokens."""

    context: int
    pool: int
    prompt: int
    """Less than the pool with HiSparse, as a prompt is prefilled on the device."""


def read_generate(body: bytes, limits: RequestLimits) -> tuple[GenerateBody, list[ServedRequest]]:
    """Parse and check a body, one request per prompt.

    Raises:
        InputError: what is wrong with it, in one line.

    """
    parsed = read(GenerateBody, body)
    prompts = _prompts(parsed)
    many = len(prompts)
    given = parsed.sampling_params
    samplings = given if isinstance(given, list) else [given] * many
    ids = _ids(parsed, many)
    if not len(samplings) == len(ids) == many:
        raise InputError(f"{many} prompts, but {len(samplings)} sampling_params and {len(ids)} rid")
    rows = zip(ids, prompts, samplings, parsed.meetings(many), strict=True)
    return parsed, [
        ServedRequest(name, prompt, _sampling(wish, len(prompt), limits), at) for name, prompt, wish, at in rows
    ]


def read(kind: type[B], body: bytes) -> B:
    """Parse a JSON body.

    Raises:
        InputError: no JSON, or not of this shape.

    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{place}: {first['msg']}" if place else first["msg"]) from error


def answer(request: ServedRequest, update: RequestProgress) -> dict[str, object]:
    """One frame of a stream, or the whole answer: text and ids are cumulative."""
    return {
        "text": update.text,
        "output_ids": request.output[: update.output_tokens],
        "meta_info": {
            "id": request.id,
            "finish_reason": _finish_reason(update.finish) if update.finish else None,
            "prompt_tokens": len(request.prompt),
            "completion_tokens": update.output_tokens,
            "cached_tokens": request.cached_tokens,
            "weight_version": "default",
            "e2e_latency": update.at_s - request.arrived_s,
            **({} if request.dp_rank is None else {"dp_rank": request.dp_rank}),
            **(_speculation(update.accepted, update.output_tokens) if update.accepted else {}),
        },
    }


def _ids(body: GenerateBody, many: int) -> list[str]:
    if body.rid is None:
        return [uuid.uuid4().hex for _ in range(many)]
    if isinstance(body.rid, list):
        return body.rid
    return [f"{body.rid}_{index}" for index in range(many)] if body.is_batch else [body.rid]


def _prompts(body: GenerateBody) -> list[list[int]]:
    if body.text is not None:
        texts = body.text if isinstance(body.text, list) else [body.text]
        prompts = [encode(text) for text in texts]
    else:
        assert body.input_ids is not None, "checked by the body"
        prompts = body.input_ids if body.is_batch else [body.input_ids]  # type: ignore[assignment,list-item]
    if not prompts or not all(prompts):
        raise InputError("a prompt is empty")
    return prompts


def _sampling(body: SamplingBody, prompt_tokens: int, limits: RequestLimits) -> SamplingParams:
    """Check lengths as sglang does, and against the pool: what can never fit is refused at once."""
    if prompt_tokens >= limits.context:
        raise InputError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limits.context} tokens)."
        )
    room = min(limits.context, limits.pool) - prompt_tokens
    new = body.max_new_tokens if body.max_new_tokens is not None else max(1, min(_DEFAULT_NEW_TOKENS, room))
    total = prompt_tokens + new
    if total > limits.context:
        raise InputError(
            f"Requested token count exceeds the model's maximum context length of {limits.context} tokens: "
            f"{prompt_tokens} of input and {new} to generate are {total}."
        )
    if total > limits.pool:
        raise InputError(
            f"The request can never fit: it needs {total} tokens of KV cache ({prompt_tokens} of input, {new} to "
            f"generate), and the pool has {limits.pool}."
        )
    if prompt_tokens > limits.prompt:
        raise InputError(
            f"The request can never fit: its {prompt_tokens} tokens of input are prefilled on the device, which has "
            f"room for {limits.prompt}."
        )
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return SamplingParams(
        max_new_tokens=new,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        ignore_eos=body.ignore_eos,
        stop=tuple(text for text in stop if text),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        seed=body.seed,
    )


def _finish_reason(finish: FinishReason) -> dict[str, object]:
    return {name: value for name, value in asdict(finish).items() if value is not None}


def _speculation(accepted: AcceptedDrafts, output_tokens: int) -> dict[str, float]:
    """As sglang 0.5.23 has it (tokenizer_manager.py:3150): tokens per pass include the pass's own."""
    return {
        "spec_accept_rate": accepted.correct / accepted.proposed if accepted.proposed else 0.0,
        "spec_accept_length": output_tokens / accepted.verify_passes,
        "spec_num_correct_drafts": accepted.correct,
        "spec_num_proposed_drafts": accepted.proposed,
        "spec_verify_ct": accepted.verify_passes,
    }

"""Conversations that the server's own answers become part of: agentic traces, and the chats of `generated-shared-prefix`.

An agentic trace (sglang/benchmark/datasets/agentic_trace.py) is one JSON object. Each turn has the messages that are new
in it: what the user said, or what a tool returned.

    {"conversations": [[{"messages": [{"role": "user", "content": "…"}], "prompt_tokens": 73821, "delay": 1500}, …], …]}

`delay` (ms, ours) is the pause before a turn, such as the time that its tool took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dsabench.errors import InputError, printable
from dsabench.load.draw.as_bench_serving import DatasetSelection, SeededGenerators
from dsabench.load.draw.recorded import dataset_file, milliseconds, rows_of_part
from dsabench.load.draw.tokenizers import Tokenizer, count_chat
from dsabench.model.sample import Prompt

Messages = Sequence[Mapping[str, object]]
OUTPUT_TOKENS = 220
"""Of each turn, where no length is asked for; bench_serving's."""


class Turn(NamedTuple):
    """What is new in one turn, and its tokens."""

    messages: Messages
    tokens: int
    pause_s: float = 0.0


def as_chat(name: str, turns: Sequence[Turn], output_len: int) -> Iterator[Prompt]:
    """One prompt per turn; what a turn repeats counts as if every answer were as long as was asked."""
    input_len = 0
    for number, turn in enumerate(turns):
        input_len += turn.tokens + (output_len if number else 0)
        yield Prompt(
            input_len,
            output_len,
            messages=tuple(turn.messages),
            session=name,
            pause_s=turn.pause_s,
            continues=number > 0,
        )


def draw_agentic(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """The turns of the first `num_prompts` conversations, in the file's order from the offset on.

    Raises:
        InputError: the file is missing, or a turn is not of the format; with its place.

    """
    del generators
    if selection.path is None:
        raise InputError("dataset agentic-trace needs a path (JSON: {conversations: [[{messages: […]}, …], …]})")
    found = list(_conversations(selection))
    start = selection.trace.offset % len(found)
    prompts: list[Prompt] = []
    count = 0
    for place, conversation in found[start:] + found[:start]:
        if 0 < selection.num_prompts == count:
            break
        turns = [
            _turn(turn, f"{selection.path}: conversations[{place}][{number}]", number, tokenizer, selection)
            for number, turn in enumerate(conversation)
            if not isinstance(turn, dict) or turn.get("messages")
        ][: selection.trace.max_turns]
        prompts += as_chat(str(place), turns, selection.fixed_output_len or OUTPUT_TOKENS)
        count += bool(turns)
    if not prompts:
        raise InputError(f"{selection.path}: no conversation with messages")
    return prompts


def _conversations(selection: DatasetSelection) -> Iterator[tuple[int, list[Any]]]:
    path = dataset_file(selection.path or "", selection.sha256)
    try:
        whole = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    listed = whole.get("conversations") if isinstance(whole, dict) else None
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{path}: an agentic trace is an object with a list of conversations")
    for place, conversation in rows_of_part(enumerate(listed), selection.rows):
        if not isinstance(conversation, list):
            raise InputError(f"{path}: conversations[{place}]: is a list of turns")
        yield place, conversation


def _turn(turn: object, place: str, number: int, tokenizer: Tokenizer, selection: DatasetSelection) -> Turn:
    messages = turn.get("messages") if isinstance(turn, dict) else None
    if not isinstance(turn, dict) or not isinstance(messages, list):
        raise InputError(f"{place}: a turn is an object with a list of messages")
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise InputError(f"{place}: a message has role and content, not {printable(json.dumps(message), 60)}")
    said = [{"role": message["role"], "content": message["content"]} for message in messages]
    if selection.exact:
        recorded = turn.get("prompt_tokens", 0) if number == 0 else 0
        return Turn(said, recorded if isinstance(recorded, int) else 0)
    try:
        pause_s = (milliseconds(turn, "delay") or 0.0) / 1e3
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    return Turn(said, _tokens(said, tokenizer), pause_s)


def _tokens(messages: list[dict[str, object]], tokenizer: Tokenizer) -> int:
    counted = count_chat(tokenizer, messages)
    return counted if counted is not None else sum(tokenizer.count(str(message["content"])) for message in messages)

"""`mooncake` (datasets/mooncake.py): sessions of a trace, each a burst of rounds at its timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from dsabench.errors import InputError
from dsabench.load.datasets.exact.conversations import read_json_lines
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.selection import Selection
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt

_RELEASE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release"
TRACE_URLS: Mapping[str, str] = {
    "mooncake": f"{_RELEASE}/arxiv-trace/mooncake_trace.jsonl",
    "conversation": f"{_RELEASE}/traces/conversation_trace.jsonl",
    "synthetic": f"{_RELEASE}/traces/synthetic_trace.jsonl",
    "toolagent": f"{_RELEASE}/traces/toolagent_trace.jsonl",
}
_BLOCK = " ".join(["hi"] * 128)
_QUESTION = "Tell me a story based on this context."


def draw_mooncake(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """`num_prompts` sessions in the order of their timestamps, `rounds` prompts each; `due_s` says when.

    A block of the trace becomes its hash and 128 words, so prompts share prefixes as the trace says, but are shorter.
    The rounds of a session are due together: what the model answered is not known, a placeholder stands for it.
    """
    del dice
    records: list[dict[str, Any]] = []
    for record in read_json_lines(_with_path(selection)):
        if len(records) == selection.num_prompts:
            break
        if not isinstance(record, dict) or not isinstance(record.get("timestamp"), int | float):
            raise InputError(f"{selection.path}: a line of a Mooncake trace is an object with a timestamp (ms)")
        if not isinstance(record.get("hash_ids", []), list) or not isinstance(record.get("output_length", 1), int):
            raise InputError(f"{selection.path}: hash_ids is a list and output_length a number of tokens")
        records.append(record)
    if not records:
        raise InputError(f"{selection.path}: the trace is empty")
    records.sort(key=itemgetter("timestamp"))
    return [prompt for record in records for prompt in _session(record, records[0], selection, tokenizer)]


def warm_up_prompt(selection: Selection, tokenizer: Tokenizer) -> Prompt:
    """What bench_serving warms up with: another text of the trace's first line."""
    record = next(read_json_lines(_with_path(selection)))
    text = "".join(f"{hash_id}" + " ".join(["hi"] * 512) for hash_id in record.get("hash_ids", []))
    text += "Can you tell me a detailed story in 1000 words?"
    return Prompt(len(tokenizer.encode(text)), record.get("output_length", 32), text=text)


def _with_path(selection: Selection) -> Selection:
    return selection if selection.path else selection._replace(path=TRACE_URLS[selection.trace.name])


def _session(record: dict[str, Any], first: dict[str, Any], selection: Selection, tokenizer: Tokenizer) -> list[Prompt]:
    due_s = (record["timestamp"] - first["timestamp"]) / 1000.0 * selection.trace.slowdown
    question = "".join(f"{hash_id}{_BLOCK}" for hash_id in record.get("hash_ids", [])) + _QUESTION
    output_len = record.get("output_length", 256)
    history: list[dict[str, str]] = []
    prompts = []
    for place in range(selection.trace.rounds):
        history.append({"role": "user", "content": f"Round {place + 1}: {question}"})
        text = tokenizer.render_chat(history)
        if text is None:
            text = "\n".join(f"{message['role']}: {message['content']}" for message in history)
        prompts.append(Prompt(len(tokenizer.encode(text)), output_len, text=text, due_s=due_s))
        history.append({"role": "assistant", "content": " ".join(["story"] * output_len)})
    return prompts

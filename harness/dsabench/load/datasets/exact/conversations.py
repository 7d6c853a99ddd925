"""`sharegpt` (datasets/sharegpt.py) and `custom` (datasets/custom.py): first turn asked, second turn's length generated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dsabench.errors import InputError
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.files import find_file
from dsabench.load.datasets.selection import Selection
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt

SHAREGPT_URL = (
    "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/"
    "ShareGPT_V3_unfiltered_cleaned_split.json"
)
_ASSISTANT = "Assistant:"
Turns = tuple[str, str]


def draw_conversations(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """Shuffled; pairs shorter than two tokens or longer than the context are left out.

    Raises:
        InputError: the file is missing or of another format, or no conversation is left.

    """
    turns = list(read_custom(selection) if selection.dataset == "custom" else read_sharegpt(selection))
    dice.python.shuffle(turns)
    prompts: list[Prompt] = []
    for question, answer in turns:
        if len(prompts) == selection.num_prompts:
            break
        text = _dressed(question, selection, tokenizer)
        input_len = len(tokenizer.encode(text))
        output_len = selection.fixed_output_len
        if output_len is None:
            output_len = len(tokenizer.encode(answer))
        too_long = selection.context_len and input_len + output_len > selection.context_len
        if input_len >= 2 and output_len >= 2 and not too_long:
            prompts.append(Prompt(input_len, output_len, text=text))
    if not prompts:
        raise InputError(f"{selection.path or SHAREGPT_URL}: no conversation with two turns of fitting length")
    return prompts


def read_sharegpt(selection: Selection) -> Iterator[Turns]:
    """First two turns of each conversation in a JSON list."""
    path = find_file(selection.path or SHAREGPT_URL, selection.sha256)
    try:
        entries = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise InputError(f"{path}: ShareGPT's JSON is a list of conversations")
    for entry in entries:
        match _turns(entry):
            case [{"value": str(question)}, {"value": str(answer)}, *_]:
                yield question, answer


def read_custom(selection: Selection) -> Iterator[Turns]:
    """First two turns of each line that is JSON; the text is under `content` or `value`."""
    if selection.path is None:
        raise InputError("dataset custom needs a path (JSONL: {conversations: [{content: …}, {content: …}]} a line)")
    for entry in read_json_lines(selection):
        match _turns(entry):
            case [dict(question), dict(answer), *_]:
                yield _said(question), _said(answer)


def read_json_lines(selection: Selection) -> Iterator[Any]:
    """Every line that is JSON; others are passed over, as in bench_serving."""
    path = find_file(selection.path or "", selection.sha256)
    with path.open(encoding="utf-8") as file:
        try:
            for line in file:
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8: {error}") from error


def _turns(entry: object) -> object:
    return entry.get("conversations", entry.get("conversation", [])) if isinstance(entry, dict) else []


def _said(turn: dict[str, Any]) -> str:
    return str(turn.get("content", turn.get("value", "")))


def _dressed(question: str, selection: Selection, tokenizer: Tokenizer) -> str:
    """With the suffix and inside the chat template, where they are asked for."""
    text = question
    if selection.prompt_suffix:
        text = text.removesuffix(_ASSISTANT) + selection.prompt_suffix + _ASSISTANT
    if selection.apply_chat_template:
        rendered = tokenizer.render_chat([{"role": "user", "content": text}])
        if rendered is None:
            raise InputError("--apply-chat-template: the tokenizer has no chat template")
        text = rendered.replace(tokenizer.bos_token, "") if tokenizer.bos_token else rendered
    return text

"""`openai` (datasets/openai_dataset.py): requests for /v1/chat/completions, one JSON object a line."""

from __future__ import annotations

import itertools
import json

from dsabench.errors import InputError
from dsabench.load.datasets.exact.conversations import read_json_lines
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.selection import Selection
from dsabench.load.tokenizers.bytewise import Bytewise
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt

_OURS = frozenset({"messages", "max_tokens", "max_completion_tokens", "model"})
"""Fields that the client sets; every other one is sent as it stands."""


def draw_openai(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """The first `num_prompts` lines that are JSON, in their order; those without messages are left out.

    Raises:
        InputError: the file is missing, holds no request, or the tokenizer has no chat template to count with.

    """
    del dice
    if selection.path is None:
        raise InputError("dataset openai needs a path (JSONL: {messages: […], max_tokens: …} a line)")
    lines = read_json_lines(selection)
    prompts = []
    for request in itertools.islice(lines, selection.num_prompts if selection.num_prompts > 0 else None):
        if not isinstance(request, dict) or not (messages := request.get("messages")):
            continue
        extra = {name: value for name, value in request.items() if name not in _OURS}
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise InputError(f"{selection.path}: messages is no list of objects")
        chat = tokenizer.runtime_chat if isinstance(tokenizer, Bytewise) else tokenizer.render_chat
        rendered = chat(messages)
        if rendered is None:
            raise InputError("dataset openai: the tokenizer has no chat template, so prompts cannot be counted")
        input_len = tokenizer.count(rendered)
        if "tools" in extra:
            input_len += len(tokenizer.encode(json.dumps(extra["tools"])))
        output_len = selection.fixed_output_len or request.get("max_tokens", 256)
        prompts.append(Prompt(input_len, output_len, messages=tuple(messages), extra=extra))
    if not prompts:
        raise InputError(f"{selection.path}: no line with messages")
    return prompts

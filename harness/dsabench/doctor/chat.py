"""Thinking and tool calls of a running server, tried out through its chat endpoint."""

from __future__ import annotations

import json
from typing import Any

from dsabench.doctor.ask import Answer, Asker, dig, text_at
from dsabench.doctor.finding import Finding, ok, problem, warning
from dsabench.runtimes.sglang.models import DsaModel

_PATH = "/v1/chat/completions"
_TOKENS = 2048
_MARKS = ("</think>", "<think>")
_CALL_MARKS = ("<｜tool", "<tool_call>", "｜DSML｜", "<function_calls>", "<｜DSML")
_TEMPERATURE = "41.5"
_TOOL_NAME = "read_thermometer"
_TOOL = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "Reads the thermometer of a room, in degrees Celsius.",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string", "description": "Name of the room"}},
            "required": ["room"],
        },
    },
}


async def look_at_thinking(asker: Asker, name: str, model: DsaModel | None) -> Finding:
    """The thinking arrives in `reasoning_content`, apart from the answer."""
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "user", "content": "What is 17 times 23? Think first."}],
        "max_tokens": _TOKENS,
        "temperature": 0,
        # One of the two is each model family's name for it; templates ignore the other.
        "chat_template_kwargs": {"thinking": True, "enable_thinking": True},
    }
    answer = await asker.post(_PATH, body)
    if answer.body is None:
        return problem("thinking", answer.error)
    thought, said = _said(answer)
    parser = model.reasoning_parser if model else "deepseek-v3"
    if any(mark in said for mark in _MARKS):
        fix = f"add to the server's command: --reasoning-parser {parser}"
        return problem("thinking", "it stands in content, not in reasoning_content", fix)
    if thought:
        return ok("thinking", f"arrives in reasoning_content ({len(thought)} characters)")
    if _is_cut(answer):
        fix = f"add to the server's command: --reasoning-parser {parser}"
        return warning("thinking", f"nothing in reasoning_content, and the answer was cut at {_TOKENS} tokens", fix)
    return warning(
        "thinking",
        "none, although it was asked for: the chat template does not know `thinking`, or the model does not think",
        f"add to the server's command: --reasoning-parser {parser}, and the model's own --chat-template",
    )


async def look_at_tools(asker: Asker, name: str, model: DsaModel | None) -> Finding:
    """A call comes out, its result goes in, and the answer knows the result."""
    question = {"role": "user", "content": "How warm is it in the room called attic? Use the thermometer."}
    body: dict[str, Any] = {"model": name, "messages": [question], "tools": [_TOOL], "temperature": 0}
    body["max_tokens"] = _TOKENS
    first = await asker.post(_PATH, body)
    parser = (model.tool_call_parser if model else None) or "deepseekv32"
    fix = f"add to the server's command: --tool-call-parser {parser}"
    if first.body is None:
        return problem("tool calls", first.error, fix)
    call = dig(first.body, "choices", 0, "message", "tool_calls", 0)
    trouble = _no_call(first, fix) if call is None else _wrong_call(call, fix)
    if trouble is not None:
        return trouble
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": text_at(call, "id"), "content": f"{_TEMPERATURE} degrees"}
    second = await asker.post(_PATH, {**body, "messages": [question, message, result]})
    if second.body is None:
        return problem("tool calls", f"the result of a call is refused: {second.error}", fix)
    if _TEMPERATURE in "".join(_said(second)):
        return ok("tool calls", "a call comes out, its result goes in, the answer knows it")
    template = "add to the server's command: --chat-template FILE with the model's template for tools"
    return warning("tool calls", "the answer does not mention the result that it was given", template)


def _no_call(answer: Answer, fix: str) -> Finding:
    """Why an answer has no call in its place."""
    if any(mark in _said(answer)[1] for mark in _CALL_MARKS):
        return problem("tool calls", "the call stands in content, not in tool_calls", fix)
    cut = f"; the answer was cut at {_TOKENS} tokens" if _is_cut(answer) else ""
    return warning("tool calls", f"the model called no tool when asked to{cut}", fix)


def _wrong_call(call: Any, fix: str) -> Finding | None:
    """What is wrong with a call; None where it names our tool with arguments that are JSON."""
    name = text_at(call, "function", "name")
    if name != _TOOL_NAME:
        return problem("tool calls", f"the call names {name or 'no tool'}, not {_TOOL_NAME}", fix)
    try:
        arguments = json.loads(text_at(call, "function", "arguments"))
    except ValueError:
        return problem("tool calls", "the arguments of the call are no JSON", fix)
    if isinstance(arguments, dict) and "room" in arguments:
        return None
    return problem("tool calls", "the call lacks the argument `room`", fix)


def _said(answer: Answer) -> tuple[str, str]:
    """Thinking and answer."""
    message = ("choices", 0, "message")
    return text_at(answer.body, *message, "reasoning_content"), text_at(answer.body, *message, "content")


def _is_cut(answer: Answer) -> bool:
    return text_at(answer.body, "choices", 0, "finish_reason") == "length"

"""Thinking and tool calls of a running server, tried out through its chat endpoint.

Answers are heard as they come, and no longer than a verdict takes: 2,048 tokens are more than a minute on a slow server.
"""

from __future__ import annotations

import json
from typing import Any

from dsabench.doctor.ask import Asker
from dsabench.doctor.finding import Finding, ok, problem, warning
from dsabench.doctor.heard import Call, Heard
from dsabench.runtimes.sglang.models import DsaModel

_PATH = "/v1/chat/completions"
_TOKENS = 2048
_MARKS = ("</think>", "<think>")
_ENOUGH_THOUGHT = 32
"""Characters: a parser that lets thinking through at all has then let a few pieces through."""
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
    asker.tell("thinking")
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "user", "content": "What is 17 times 23? Think first."}],
        "max_tokens": _TOKENS,
        "temperature": 0,
        # One of the two is each model family's name for it; templates ignore the other.
        "chat_template_kwargs": {"thinking": True, "enable_thinking": True},
    }
    heard = await asker.listen(_PATH, body, _tells_thinking)
    if heard.error:
        return problem("thinking", heard.error)
    parser = model.reasoning_parser if model else "deepseek-v3"
    fix = f"add to the server's command: --reasoning-parser {parser}"
    if _has_mark(heard):
        return problem("thinking", "it stands in content, not in reasoning_content", fix)
    if heard.limit_s is not None:
        return _undecided("thinking", heard, fix)
    if heard.thought.strip():
        return ok("thinking", f"arrives in reasoning_content ({len(heard.thought)} characters heard)")
    if heard.is_cut:
        return warning("thinking", f"nothing in reasoning_content, and the answer was cut at {_TOKENS} tokens", fix)
    return warning(
        "thinking",
        "none, although it was asked for: the chat template does not know `thinking`, or the model does not think",
        f"{fix}, and the model's own --chat-template",
    )


def _has_mark(heard: Heard) -> bool:
    return any(mark in heard.said for mark in _MARKS)


def _tells_thinking(heard: Heard) -> bool:
    """Without a parser all is content: a template that opens the thinking itself leaves only `</think>`, at its end."""
    return _has_mark(heard) or len(heard.thought.strip()) >= _ENOUGH_THOUGHT


async def look_at_tools(asker: Asker, name: str, model: DsaModel | None) -> Finding:
    """A call comes out, its result goes in, and the answer knows the result."""
    asker.tell("tool calls")
    question = {"role": "user", "content": "How warm is it in the room called attic? Use the thermometer."}
    body: dict[str, Any] = {"model": name, "messages": [question], "tools": [_TOOL], "temperature": 0}
    body["max_tokens"] = _TOKENS
    first = await asker.listen(_PATH, body, lambda _: False)  # a call is whole when the answer ends
    parser = (model.tool_call_parser if model else None) or "deepseekv32"
    fix = f"add to the server's command: --tool-call-parser {parser}"
    if first.error:
        return problem("tool calls", first.error, fix if first.refused else None)
    call = first.call
    if call is None:
        return _no_call(first, fix)
    if (wrong := _fault_of(call)) is not None:
        return problem("tool calls", wrong, fix) if first.limit_s is None else _undecided("tool calls", first, fix)
    asker.tell("tool calls: what becomes of a result")
    message = {"role": "assistant", "content": None, "tool_calls": [call.as_message()]}
    result = {"role": "tool", "tool_call_id": call.id, "content": f"{_TEMPERATURE} degrees"}
    second = await asker.listen(_PATH, {**body, "messages": [question, message, result]}, _knows_result)
    return _of_result(second, fix)


def _of_result(heard: Heard, fix: str) -> Finding:
    """What the answer to a result comes to."""
    if heard.refused:
        return problem("tool calls", f"the result of a call is refused: {heard.error}", fix)
    if heard.error:
        return problem("tool calls", f"a call comes out; after its result: {heard.error}")
    if _knows_result(heard):
        return ok("tool calls", "a call comes out, its result goes in, the answer knows it")
    template = "add to the server's command: --chat-template FILE with the model's template for tools"
    if heard.limit_s is not None:
        line = f"the answer does not mention the result that it was given within {heard.limit_s:g} s: {heard.told}"
        return warning("tool calls", line, template)
    return warning("tool calls", "the answer does not mention the result that it was given", template)


def _knows_result(heard: Heard) -> bool:
    return _TEMPERATURE in heard.thought or _TEMPERATURE in heard.said


def _no_call(heard: Heard, fix: str) -> Finding:
    """Why an answer has no call in its place."""
    if any(mark in heard.said for mark in _CALL_MARKS):
        return problem("tool calls", "the call stands in content, not in tool_calls", fix)
    if heard.limit_s is not None:
        return _undecided("tool calls", heard, fix)
    cut = f"; the answer was cut at {_TOKENS} tokens" if heard.is_cut else ""
    return warning("tool calls", f"the model called no tool when asked to{cut}", fix)


def _fault_of(call: Call) -> str | None:
    """What is wrong with a call; None where it names our tool with arguments that are JSON."""
    if call.name != _TOOL_NAME:
        return f"the call names {call.name or 'no tool'}, not {_TOOL_NAME}"
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return "the arguments of the call are no JSON"
    if isinstance(arguments, dict) and "room" in arguments:
        return None
    return "the call lacks the argument `room`"


def _undecided(check: str, heard: Heard, fix: str) -> Finding:
    return warning(check, f"undecided after {heard.limit_s:g} s: {heard.told}", fix)

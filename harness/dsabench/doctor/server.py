"""Check a running server: what it says of itself, whether it answers, thinks and calls tools as it should."""

from __future__ import annotations

import json
from typing import Any

from dsabench.doctor.ask import JsonAnswer, ServerProbe
from dsabench.doctor.chat_stream import ChatStream, ToolCall, dig, number_at, text_at
from dsabench.doctor.openai_client import check_openai_client
from dsabench.machine.checks import Finding, ok, problem, warning
from dsabench.sglang.models import DsaModel, find_model

_PROBE = "Name one prime number."
_MTP = (
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


async def check_server(asker: ServerProbe) -> list[Finding]:
    """Every check of a running server; only the first where it does not answer."""
    asker.tell("server")
    trouble = await asker.alive()
    if trouble is not None:
        return [problem("server", trouble, f"curl -i {asker.base_url}/health")]
    info = await read_info(asker)
    if isinstance(info, Finding):
        return [info]
    name = text_at(info, "served_model_name") or text_at(info, "model_path") or "default"
    model = find_model(text_at(info, "model_path")) or find_model(name)
    is_reference = dig(info, "reference") is not None
    runtime = "dsabench's reference runtime" if is_reference else "sglang"
    found = [ok("server", f"{runtime} {text_at(info, 'version') or 'of unknown version'} serves {name}")]
    found.append(await check_template(asker, name))
    if found[-1].verdict != "problem":
        found.append(await check_openai_client(asker, name))
    found.append(await check_speculation(asker, info))
    if is_reference:
        line = "the reference runtime has random weights: it neither thinks nor calls tools"
        return [*found, ok("thinking", line), ok("tool calls", line)]
    return [*found, await check_thinking(asker, name, model), await _tools(asker, name, model)]


async def _tools(asker: ServerProbe, name: str, model: DsaModel | None) -> Finding:
    if model is not None and model.tool_call_parser is None:
        return ok("tool calls", f"{model.name} calls no tools")
    return await check_tools(asker, name, model)


async def read_info(asker: ServerProbe) -> dict[str, Any] | Finding:
    """/server_info, by its name of today or of 0.5.9; else the problem."""
    answer = await asker.get("/server_info")
    if answer.status == 404:
        answer = await asker.get("/get_server_info")
    return _no_info(asker, answer) if answer.body is None else answer.body


def _no_info(asker: ServerProbe, answer: JsonAnswer) -> Finding:
    if answer.status in {401, 403}:
        fix = (
            f"dsabench doctor --base-url {asker.base_url} --api-key-env NAME   # NAME: the variable that holds the key"
        )
        return problem("server", f"it wants {'an' if asker.api_key is None else 'another'} API key", fix)
    if answer.status is None:
        return problem("server", answer.error, f"curl -i {asker.base_url}/health")
    line = f"it does not say what it runs, so it is no sglang: {answer.error}"
    return problem("server", line, f"curl -i {asker.base_url}/server_info")


async def check_template(asker: ServerProbe, name: str) -> Finding:
    """A conversation has more tokens than its text: the marks of the roles."""
    asker.tell("chat template")
    sampling = {"model": name, "max_tokens": 1, "temperature": 0}
    chat = await asker.post("/v1/chat/completions", {**sampling, "messages": [{"role": "user", "content": _PROBE}]})
    plain = await asker.post("/v1/completions", {**sampling, "prompt": _PROBE})
    for answer in (chat, plain):
        if answer.body is None:
            return problem("chat template", answer.error, "add --chat-template FILE to the server's command")
    with_roles, without = (number_at(a.body, "usage", "prompt_tokens") for a in (chat, plain))
    if with_roles is None or without is None:
        return warning("chat template", "the answers do not say how many tokens the prompt had")
    counted = f"a question of {without:.0f} tokens becomes {with_roles:.0f} in a conversation"
    if with_roles > without:
        return ok("chat template", counted)
    return problem(
        "chat template", f"{counted}: the roles are not marked", "add --chat-template FILE to the server's command"
    )


async def check_speculation(asker: ServerProbe, info: dict[str, Any]) -> Finding:
    """Whether drafts are made, and how many of them are accepted."""
    algorithm = text_at(info, "speculative_algorithm")
    if not algorithm or algorithm.lower() == "none":
        return warning("speculative decoding", "off", f"add to the server's command: {_MTP}")
    asker.tell("speculative decoding")
    sampling = {"max_new_tokens": 64, "temperature": 0, "ignore_eos": True}
    answer = await asker.post("/generate", {"text": "Count from one to forty: one, two,", "sampling_params": sampling})
    if answer.body is None:
        return problem("speculative decoding", f"{algorithm} is set, but {answer.error}")
    accepted = number_at(answer.body, "meta_info", "spec_accept_length")
    if accepted is None:
        made, rounds = (number_at(answer.body, "meta_info", key) for key in ("completion_tokens", "spec_verify_ct"))
        accepted = made / rounds if made and rounds else None
    if accepted is None:
        return warning("speculative decoding", f"{algorithm} is set, but an answer does not say what was accepted")
    line = f"{algorithm}, {accepted:.2f} tokens a step"
    if accepted > 1.05:
        return ok("speculative decoding", f"on: {line}")
    fix = "look for a missing draft layer: grep -i 'draft\\|nextn' in the server's log"
    return warning("speculative decoding", f"{line}: no draft is ever accepted", fix)


_PATH = "/v1/chat/completions"
_THINKING = {"chat_template_kwargs": {"thinking": True, "enable_thinking": True}}
"""One of the two is each model family's name for it; templates ignore the other."""
_NO_THINKING = {"chat_template_kwargs": {"thinking": False}}
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


async def check_thinking(asker: ServerProbe, name: str, model: DsaModel | None) -> Finding:
    """The thinking arrives in `reasoning_content`, apart from the answer."""
    asker.tell("thinking")
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "user", "content": "What is 17 times 23? Think first."}],
        "max_tokens": _TOKENS,
        "temperature": 0,
        **_THINKING,
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


def _has_mark(heard: ChatStream) -> bool:
    return any(mark in heard.said for mark in _MARKS)


def _tells_thinking(heard: ChatStream) -> bool:
    """Without a parser all is content: a template that opens the thinking itself leaves only `</think>`, at its end."""
    return _has_mark(heard) or len(heard.thought.strip()) >= _ENOUGH_THOUGHT


async def check_tools(asker: ServerProbe, name: str, model: DsaModel | None) -> Finding:
    """A call comes out, its result goes in, and the answer knows the result."""
    asker.tell("tool calls")
    question = {"role": "user", "content": "How warm is it in the room called attic? Use the thermometer."}
    body: dict[str, Any] = {"model": name, "messages": [question], "tools": [_TOOL], "temperature": 0}
    body |= {"max_tokens": _TOKENS, **_THINKING}  # a parser may lose its way only between thinking, call and answer
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


def _of_result(heard: ChatStream, fix: str) -> Finding:
    """What the answer to a result comes to."""
    if heard.refused:
        return problem("tool calls", f"the result of a call is refused: {heard.error}", fix)
    if heard.error:
        return problem("tool calls", f"a call comes out; after its result: {heard.error}")
    if _knows_result(heard):
        return ok("tool calls", "a call comes out, its result goes in, the answer knows it")
    if _TEMPERATURE in heard.thought and not heard.said.strip() and heard.limit_s is None and not heard.is_cut:
        line = "after a tool's result the whole answer stands in reasoning_content, and content is empty (sglang#17551)"
        return problem("tool calls", line, f"add to what is asked: {json.dumps(_NO_THINKING)}; or take a later sglang")
    template = "add to the server's command: --chat-template FILE with the model's template for tools"
    if heard.limit_s is not None:
        line = f"the answer does not mention the result that it was given within {heard.limit_s:g} s: {heard.told}"
        return warning("tool calls", line, template)
    return warning("tool calls", "the answer does not mention the result that it was given", template)


def _knows_result(heard: ChatStream) -> bool:
    return _TEMPERATURE in heard.said


def _no_call(heard: ChatStream, fix: str) -> Finding:
    """Why an answer has no call in its place."""
    if any(mark in heard.said for mark in _CALL_MARKS):
        return problem("tool calls", "the call stands in content, not in tool_calls", fix)
    if heard.limit_s is not None:
        return _undecided("tool calls", heard, fix)
    cut = f"; the answer was cut at {_TOKENS} tokens" if heard.is_cut else ""
    return warning("tool calls", f"the model called no tool when asked to{cut}", fix)


def _fault_of(call: ToolCall) -> str | None:
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


def _undecided(check: str, heard: ChatStream, fix: str) -> Finding:
    return warning(check, f"undecided after {heard.limit_s:g} s: {heard.told}", fix)

"""A running server: does it answer, is the chat template applied, is speculative decoding on."""

from __future__ import annotations

from typing import Any

from dsabench.doctor.ask import Answer, Asker
from dsabench.doctor.chat import look_at_thinking, look_at_tools
from dsabench.doctor.finding import Finding, ok, problem, warning
from dsabench.doctor.json_paths import dig, number_at, text_at
from dsabench.runtimes.sglang.models import DsaModel, find_model

_PROBE = "Name one prime number."
_MTP = (
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


async def look_at_server(asker: Asker) -> list[Finding]:
    """Every check of a running server; only the first where it does not answer."""
    asker.tell("server")
    trouble = await asker.alive()
    if trouble is not None:
        return [problem("server", trouble, f"curl -i {asker.base_url}/health")]
    answer = await _info(asker)
    if answer.body is None:
        return [_no_info(asker, answer)]
    info = answer.body
    name = text_at(info, "served_model_name") or text_at(info, "model_path") or "default"
    model = find_model(text_at(info, "model_path")) or find_model(name)
    is_reference = dig(info, "reference") is not None
    runtime = "dsabench's reference runtime" if is_reference else "sglang"
    found = [ok("server", f"{runtime} {text_at(info, 'version') or 'of unknown version'} serves {name}")]
    found.append(await look_at_template(asker, name))
    found.append(await look_at_speculation(asker, info))
    if is_reference:
        line = "the reference runtime has random weights: it neither thinks nor calls tools"
        return [*found, ok("thinking", line), ok("tool calls", line)]
    return [*found, await look_at_thinking(asker, name, model), await _tools(asker, name, model)]


async def _tools(asker: Asker, name: str, model: DsaModel | None) -> Finding:
    if model is not None and model.tool_call_parser is None:
        return ok("tool calls", f"{model.name} calls no tools")
    return await look_at_tools(asker, name, model)


async def _info(asker: Asker) -> Answer:
    """/server_info, by its name of today or of 0.5.9."""
    answer = await asker.get("/server_info")
    return await asker.get("/get_server_info") if answer.status == 404 else answer


def _no_info(asker: Asker, answer: Answer) -> Finding:
    if answer.status in {401, 403}:
        fix = (
            f"dsabench doctor --base-url {asker.base_url} --api-key-env NAME   # NAME: the variable that holds the key"
        )
        return problem("server", f"it wants {'an' if asker.api_key is None else 'another'} API key", fix)
    line = f"it answers /health but does not say what it runs, so it is no sglang: {answer.error}"
    return problem("server", line, f"curl -i {asker.base_url}/server_info")


async def look_at_template(asker: Asker, name: str) -> Finding:
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


async def look_at_speculation(asker: Asker, info: dict[str, Any]) -> Finding:
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

"""A question as a request to an OpenAI endpoint."""

from __future__ import annotations

import orjson

from dsabench.model.evals import Endpoint, EvalTask

_PATHS: dict[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_THINKING_WORD = {"deepseek-v3": "thinking", "kimi-k2": "thinking"}
"""Keyword of the chat template that turns thinking on; `enable_thinking` for all other modes (run_eval, sglang 0.5.10)."""
WARM_UP = "Name the capital of France in one word."


def path_of(task: EvalTask) -> str:
    """Where the request is posted to."""
    return _PATHS[task.endpoint]


def body_of(task: EvalTask, model: str, prompt: str) -> bytes:
    """The JSON of one streaming request."""
    content: dict[str, object] = {"prompt": prompt}
    if task.endpoint == "chat":
        content = {"messages": [{"role": "user", "content": prompt}]}
        if task.thinking is not None:
            content["chat_template_kwargs"] = {_THINKING_WORD.get(task.thinking, "enable_thinking"): True}
    if task.stop:
        content["stop"] = list(task.stop)
    drawn = {"temperature": task.temperature, "top_p": task.top_p, "max_tokens": task.max_tokens}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    return orjson.dumps({"model": model, **content, **drawn, **stream})

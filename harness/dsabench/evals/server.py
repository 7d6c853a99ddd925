"""Who answers at a base URL, and which model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import orjson
from pydantic import JsonValue

from dsabench.errors import HttpFault, InputError, TrialFault
from dsabench.evals.ask import Target
from dsabench.http import HttpClient
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.secrets import without_secrets
from dsabench.model.value import digest
from dsabench.runtimes.command import Launch
from dsabench.runtimes.endpoint import INFO_PATHS, Endpoint
from dsabench.runtimes.external import ExternalRuntime

DEFAULT_URL = "http://127.0.0.1:30000"
KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Served:
    """A server that somebody else started."""

    target: Target
    identity: RuntimeIdentity
    info: Mapping[str, JsonValue]
    """What it says of its settings; empty where it does not."""
    context_tokens: int | None = None
    """Longest sequence, prompt and answer together; None where it does not say."""


async def find_server(base_url: str, model: str | None) -> Served:
    """Look at a server: the model is the first that it lists, where none is given.

    Raises:
        InputError: nothing answers there, or it lists no model; the line says what to do.

    """
    url = normal_url(base_url)
    key = os.environ.get(KEY_VARIABLE) or None
    contexts = await _models(url, key)
    listed = list(contexts)
    if model is None and not listed:
        raise InputError(f"{url}/v1/models lists no model: name it with --model")
    target = Target(url, model or listed[0], key)
    try:
        info = await Endpoint(url).info("boot", INFO_PATHS)
        identity = await ExternalRuntime(Launch(base_url=url)).identity()
    except (InputError, TrialFault):
        # No sglang: it is known by its models alone.
        said = digest(json.dumps([url, *listed]))
        identity, info = RuntimeIdentity(kind="external", version="unknown", wheel_hash=f"models:{said}"), {}
    settings = {name: without_secrets(value) for name, value in info.items()}
    target = replace(target, is_sglang="version" in info)
    return Served(target, identity, settings, _context(contexts.get(target.model), info))


def _context(listed: JsonValue, info: Mapping[str, JsonValue]) -> int | None:
    """The least of what the model's entry and the settings say; sglang's pool of KV tokens may be the narrower."""
    said = (listed, info.get("context_length"), info.get("max_req_input_len"))
    return min((length for length in said if isinstance(length, int) and length > 0), default=None)


def normal_url(base_url: str) -> str:
    """Without `/v1` and slash at its end.

    Raises:
        InputError: no http address, or one with a password in it (it would stand in every record).

    """
    url = base_url.rstrip("/").removesuffix("/v1").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--base-url {base_url}: must look like {DEFAULT_URL}")
    if parts.username or parts.password:
        raise InputError(f"--base-url: no password in the address; put the key into {KEY_VARIABLE}")
    return url


async def _models(url: str, key: str | None) -> dict[str, JsonValue]:
    """Name → max_model_len of what /v1/models lists; empty where there is no such path."""
    try:
        answer = await HttpClient(url, key).get("/v1/models")
    except HttpFault as fault:
        raise InputError(f"no server answers at {url} ({fault}): start one, or name another with --base-url") from fault
    if answer.status in (401, 403):
        raise InputError(f"{url}/v1/models: HTTP {answer.status}: set {KEY_VARIABLE}")
    if answer.status != 200:
        return {}
    try:
        entries = orjson.loads(answer.body)["data"]
        return {str(entry["id"]): entry.get("max_model_len") for entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}

"""Check the runtime of a config: what its kind takes, its URL, its variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import ValidationError

from dsabench.config.mistakes import Mistakes, shown, unknown_word
from dsabench.config.search_space import SweepPart
from dsabench.config.specs import (
    DRIVEN,
    LAUNCHED,
    REFERENCE_KNOBS,
    REFERENCE_MODELS,
    RuntimeConfig,
    TopologyConfig,
    changes_behaviour,
)
from dsabench.config.yaml_file import KeyPath, YamlFile
from dsabench.model.secrets import looks_secret

_PLACES = ("server", "prefill", "decode", "router")


def runtime_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """What is wrong with a runtime that is to be measured."""
    if runtime.kind not in DRIVEN:
        message = f"this version of dsabench does not drive {runtime.kind} yet (allowed: {', '.join(DRIVEN)})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def launch_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """What is wrong with a runtime whose commands are to be written."""
    if runtime.kind not in LAUNCHED:
        message = f"{runtime.kind} is not launched by dsabench (allowed: {', '.join(LAUNCHED)})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def _any_runtime_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Model, settings, URL and environment."""
    if runtime.kind == "reference":
        yield from _reference_mistakes(source, runtime)
    if runtime.kind != "external":
        yield from _topology_mistakes(source, runtime)
    if runtime.kind != "sglang":
        yield from _sglang_only(source, runtime)
    if runtime.kind == "external":
        yield from _external_mistakes(source, runtime)
    elif runtime.base_url is not None:
        yield source.error("only kind external attaches to a server; remove the key", ("runtime", "base_url"))
    yield from _env_mistakes(source, runtime)


def _reference_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    if runtime.model not in REFERENCE_MODELS:
        yield source.error(unknown_word("reference model", runtime.model, REFERENCE_MODELS), ("runtime", "model"))
    for knob, value in runtime.base.items():
        if problem := _foreign(knob, [value]):
            yield source.error(problem, ("runtime", "base", knob))
    if runtime.topology is not None:
        yield from _role_mistakes(source, runtime.topology)


def _role_mistakes(source: YamlFile, topology: TopologyConfig) -> Mistakes:
    """Roles that the reference runtime cannot have."""
    for index, role in enumerate(topology.roles):
        here: KeyPath = ("runtime", "topology", "roles", index)
        if role.nodes > 1:
            yield source.error("the reference runtime serves on one machine; remove the key", (*here, "nodes"))
        for knob, value in role.knobs.items():
            if problem := _foreign(knob, [value]):
                yield source.error(problem, (*here, "knobs", knob))


def _foreign(knob: str, values: Sequence[object]) -> str | None:
    """Why the reference runtime cannot take a knob's values."""
    if knob not in REFERENCE_KNOBS:
        return f"the reference runtime has no such setting (it has {', '.join(REFERENCE_KNOBS)})"
    choices = REFERENCE_KNOBS[knob]
    beyond = next((value for value in values if choices and value not in choices), None)
    return None if beyond is None else f"the reference runtime takes {' or '.join(choices)}, not {shown(beyond)}"


def foreign_axes(parts: Sequence[SweepPart], runtime: RuntimeConfig) -> Mistakes:
    """Axes that the kind of runtime cannot search."""
    if runtime.kind != "reference":
        return
    for part in parts:
        for knob, values in part.sweep.axes.items():
            if problem := _foreign(knob, values):
                yield part.error(problem, "axes", knob)


def _sglang_only(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Keys that nothing would read."""
    for key in ("hardware", *(("topology",) if runtime.kind == "external" else ())):
        if getattr(runtime, key) is not None:
            yield source.error("only kind sglang has it; remove the key", ("runtime", key))
    for key in ("command_prefix", "container", "entry", "sites"):
        if runtime.kind != "external" and key in runtime.launch.model_fields_set:
            yield source.error("only kind sglang has it; remove the key", ("runtime", "launch", key))


def _topology_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Roles that fit together, and places for roles that exist."""
    here: KeyPath = ("runtime", "topology")
    if runtime.topology is not None:
        try:
            runtime.topology.settled()
        except ValidationError as error:
            yield source.error(str(error.errors()[0]["ctx"]["error"]), here)
        for index, role in enumerate(runtime.topology.roles):
            for name in filter(looks_secret, role.env):
                message = "looks like a secret, and env is recorded; move it to runtime.launch.env"
                yield source.error(message, (*here, "roles", index, "env", name))
    for name in runtime.launch.sites:
        if name not in _PLACES:
            yield source.error(unknown_word("role", name, _PLACES), ("runtime", "launch", "sites", name))


def _external_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """A running server is taken as it is: what cannot reach it must not look as if it did."""
    if runtime.base_url is None:
        yield source.error("missing key 'base_url': the server to attach to", ("runtime",))
    elif problem := _url_problem(runtime.base_url):
        yield source.error(problem, ("runtime", "base_url"))
    for key in ("base", "env", "launch"):
        if getattr(runtime, key) != type(runtime).model_fields[key].get_default(call_default_factory=True):
            yield source.error("has no effect on a server that runs already; remove it", ("runtime", key))
    if source.data.get("sweeps"):
        yield source.error("a server that runs already cannot be restarted with other settings; remove it", ("sweeps",))


def _url_problem(url: str) -> str | None:
    """Why a URL cannot be used. The URL itself is not repeated: it may hold a password."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return "is no URL; write http://HOST:PORT"
    if parts.username is not None or parts.password is not None:
        return "holds a user or password, and the URL is recorded; remove them"
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_fits or parts.query or parts.fragment:
        return "is no base URL; write http://HOST:PORT"
    return None


def _env_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    recorded: KeyPath = ("runtime", "env")
    launch: KeyPath = ("runtime", "launch", "env")
    for path, env in ((recorded, runtime.env), (launch, runtime.launch.env)):
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                yield source.error("is no name of an environment variable", (*path, name))
            if "\0" in value:
                yield source.error("holds a NUL character", (*path, name))
    for name in runtime.env:
        if looks_secret(name):
            yield source.error(
                "looks like a secret, and env is recorded; move it to runtime.launch.env", (*recorded, name)
            )
    for name in filter(changes_behaviour, runtime.launch.env):
        if runtime.env.get(name, runtime.launch.env[name]) != runtime.launch.env[name]:
            yield source.error("stands in runtime.env as well, with another value", (*launch, name))

"""Check the runtime of a config: keys and knobs of its kind, its URL, its variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from dsabench.config.mistakes import Mistakes, shown, unknown_word
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.search_space import SweepPart
from dsabench.config.specs import RuntimeConfig, changes_behaviour
from dsabench.config.yaml_file import KeyPath, YamlFile
from dsabench.model.knobs import of_role
from dsabench.model.runtime import RuntimeKind
from dsabench.model.secrets import looks_secret

_PLACES = ("server", "prefill", "decode", "router")


def runtime_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Mistakes in a runtime that is to be measured."""
    if not runtime_kinds()[runtime.kind].is_driven:
        driven = ", ".join(kind for kind, info in runtime_kinds().items() if info.is_driven)
        message = f"this version of dsabench does not drive {runtime.kind} yet (allowed: {driven})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def launch_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Mistakes in a runtime whose commands are to be written."""
    if not runtime_kinds()[runtime.kind].is_launched:
        launched = ", ".join(kind for kind, info in runtime_kinds().items() if info.is_launched)
        message = f"{runtime.kind} is not launched by dsabench (allowed: {launched})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def _any_runtime_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Check model, settings, URL and environment."""
    yield from _model_mistakes(source, runtime)
    if "topology" not in runtime_kinds()[runtime.kind].refused:
        yield from _topology_mistakes(source, runtime)
    yield from _refused_keys(source, runtime)
    yield from _url_mistakes(source, runtime)
    yield from _env_mistakes(source, runtime)


def _model_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Check for models, knobs and machines that this kind does not have."""
    info, kind = runtime_kinds()[runtime.kind], runtime.kind
    if info.models is not None and runtime.model not in info.models:
        yield source.error(unknown_word(f"{kind} model", runtime.model, info.models), ("runtime", "model"))
    for knob, value in runtime.base.items():
        if problem := _foreign(kind, knob, [value]) or _no_such_role(runtime, knob):
            yield source.error(problem, ("runtime", "base", knob))
    for index, role in enumerate(() if runtime.topology is None else runtime.topology.roles):
        here: KeyPath = ("runtime", "topology", "roles", index)
        for knob, value in role.knobs.items():
            if problem := _foreign(kind, knob, [value]):
                yield source.error(problem, (*here, "knobs", knob))


def _no_such_role(runtime: RuntimeConfig, knob: str) -> str | None:
    """Why a setting of one role is nobody's; None if it is somebody's."""
    role, _ = of_role(knob)
    roles = [] if runtime.topology is None else [one.role for one in runtime.topology.roles]
    if role is None or role in roles:
        return None
    return f"the topology has no role {role}" + (f" (it has {', '.join(roles)})" if roles else "")


def _foreign(kind: RuntimeKind, knob: str, values: Sequence[object]) -> str | None:
    """Why this kind cannot take the knob's values; None if it can."""
    knobs, knob = runtime_kinds()[kind].knobs, of_role(knob)[1]
    if knobs is None:
        return None
    if knob not in knobs:
        return f"the {kind} runtime has no such setting (it has {', '.join(knobs)})"
    choices = knobs[knob]
    beyond = next((value for value in values if choices and value not in choices), None)
    return None if beyond is None else f"the {kind} runtime takes {' or '.join(choices)}, not {shown(beyond)}"


def foreign_axes(parts: Sequence[SweepPart], runtime: RuntimeConfig) -> Mistakes:
    """Axes that this kind cannot search."""
    for part in parts:
        for knob, values in part.sweep.axes.items():
            if problem := _foreign(runtime.kind, knob, values) or _no_such_role(runtime, knob):
                yield part.error(problem, "axes", knob)


def _refused_keys(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Keys without effect on this kind. A key without effect must not look as if it had one."""
    for key, why in runtime_kinds()[runtime.kind].refused.items():
        if key == "sweeps":
            if source.data.get("sweeps"):
                yield source.error(why, ("sweeps",))
            continue
        *outer, name = key.split(".")
        holder: BaseModel = runtime
        for part in outer:
            holder = getattr(holder, part)
        field = type(holder).model_fields[name]
        if getattr(holder, name) != field.get_default(call_default_factory=True):
            yield source.error(why, ("runtime", *outer, name))


def _topology_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """Check that roles fit together, and that `sites` names existing roles."""
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


def _url_mistakes(source: YamlFile, runtime: RuntimeConfig) -> Mistakes:
    """An external server runs already: it needs a URL, and its settings cannot be changed."""
    if not runtime_kinds()[runtime.kind].needs_base_url:
        return
    if runtime.base_url is None:
        yield source.error("missing key 'base_url': the server to attach to", ("runtime",))
    elif problem := _url_problem(runtime.base_url):
        yield source.error(problem, ("runtime", "base_url"))


def _url_problem(url: str) -> str | None:
    """Why a URL cannot be used; None if it can. The URL is not repeated, because it may contain a password."""
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

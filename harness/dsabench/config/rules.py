"""What types cannot say: names that must exist, settings that exclude each other, values that must not be recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from dsabench import rooms
from dsabench.config.mistakes import shown, unknown_word
from dsabench.config.plain import KeyPath
from dsabench.config.spaces import Part
from dsabench.config.specs import (
    DRIVEN,
    LAUNCHED,
    REFERENCE_KNOBS,
    REFERENCE_MODELS,
    RuntimeConfig,
    TopologyConfig,
    changes_behaviour,
)
from dsabench.config.yaml_source import Source
from dsabench.errors import ConfigError, InputError, nearest
from dsabench.model.metrics import METRICS
from dsabench.model.secrets import looks_secret
from dsabench.model.study import Assignment, Budget, GateSpec, Objective, SearchSpace, holds
from dsabench.model.workload import Workload

Mistakes = Iterator[ConfigError]

_PLACES = ("server", "prefill", "decode", "router")


def runtime_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
    """What is wrong with a runtime that is to be measured."""
    if runtime.kind not in DRIVEN:
        message = f"this version of dsabench does not drive {runtime.kind} yet (allowed: {', '.join(DRIVEN)})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def launch_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
    """What is wrong with a runtime whose commands are to be written."""
    if runtime.kind not in LAUNCHED:
        message = f"{runtime.kind} is not launched by dsabench (allowed: {', '.join(LAUNCHED)})"
        yield source.error(message, ("runtime", "kind"))
    yield from _any_runtime_mistakes(source, runtime)


def _any_runtime_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
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


def _reference_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
    if runtime.model not in REFERENCE_MODELS:
        yield source.error(unknown_word("reference model", runtime.model, REFERENCE_MODELS), ("runtime", "model"))
    for knob, value in runtime.base.items():
        if problem := _foreign(knob, [value]):
            yield source.error(problem, ("runtime", "base", knob))
    if runtime.topology is not None:
        yield from _role_mistakes(source, runtime.topology)


def _role_mistakes(source: Source, topology: TopologyConfig) -> Mistakes:
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


def foreign_axes(parts: Sequence[Part], runtime: RuntimeConfig) -> Mistakes:
    """Axes that the kind of runtime cannot search."""
    if runtime.kind != "reference":
        return
    for part in parts:
        for knob, values in part.sweep.axes.items():
            if problem := _foreign(knob, values):
                yield part.error(problem, "axes", knob)


def _sglang_only(source: Source, runtime: RuntimeConfig) -> Mistakes:
    """Keys that nothing would read."""
    for key in ("hardware", *(("topology",) if runtime.kind == "external" else ())):
        if getattr(runtime, key) is not None:
            yield source.error("only kind sglang has it; remove the key", ("runtime", key))
    for key in ("command_prefix", "container", "entry", "sites"):
        if runtime.kind != "external" and key in runtime.launch.model_fields_set:
            yield source.error("only kind sglang has it; remove the key", ("runtime", "launch", key))


def _topology_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
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


def _external_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
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


def _env_mistakes(source: Source, runtime: RuntimeConfig) -> Mistakes:
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


def workload_mistakes(source: Source, workloads: tuple[Workload, ...]) -> Mistakes:
    """Names that tell load points apart, and files that must be there."""
    first: dict[str, int] = {}
    for index, workload in enumerate(workloads):
        path: KeyPath = ("workloads", index, "name")
        if not workload.name.strip() or not workload.name.isprintable() or len(workload.name) > 100:
            yield source.error("must be one line of 1 to 100 printable characters", path)
        if workload.name in first:
            line = source.place(("workloads", first[workload.name], "name")).line
            yield source.error(f"{workload.name!r} names the workload in line {line} already", path)
        first.setdefault(workload.name, index)
        yield from _dataset_mistakes(source, workload, ("workloads", index))


_NEEDS: dict[str, tuple[str, ...]] = {
    "random": ("input_len", "output_len", "dataset_path"),
    "random-ids": ("input_len", "output_len"),
    "custom": ("dataset_path",),
    "openai": ("dataset_path",),
    "generated-shared-prefix": ("shared_prefix",),
}


_COUNTS_TEXT = ("random", "sharegpt", "generated-shared-prefix", "mooncake", "custom")


def tokenizer_mistakes(source: Source, workloads: tuple[Workload, ...], runtime: RuntimeConfig) -> Mistakes:
    """Datasets of text need a tokenizer, and a server that has one; only the reference runtime tells its own."""
    if runtime.kind != "sglang":
        return
    for index, workload in enumerate(workloads):
        if workload.dataset not in _COUNTS_TEXT:
            continue
        path: KeyPath = ("workloads", index)
        if workload.tokenizer is None:
            reason = f"dataset {workload.dataset} counts tokens of text; name a folder with tokenizer.json"
            yield source.error(f"missing key 'tokenizer': {reason}", path)
        if runtime.base.get("tokenizer") is False:
            reason = "sends text, and runtime.base says tokenizer: false; take random-ids (with sessions for prefixes)"
            yield source.error(f"dataset {workload.dataset} {reason}", (*path, "dataset"))


def _dataset_mistakes(source: Source, workload: Workload, path: KeyPath) -> Mistakes:
    """Keys that the dataset or the arrivals need, and a file that is there; addresses are tried when they are used."""
    for key in _NEEDS.get(workload.dataset, ()):
        if getattr(workload, key) is None:
            text = workload.dataset == "random" and key == "dataset_path"
            reason = "cuts its text from that file (ShareGPT's JSON)" if text else "needs it"
            yield source.error(f"missing key {key!r}: dataset {workload.dataset} {reason}", path)
    place = workload.dataset_path
    if place is not None and not place.startswith(("http://", "https://")) and not _is_file(place):
        yield source.error(f"{place}: no such file", (*path, "dataset_path"))
    if workload.dataset == "random-ids" and workload.endpoint == "chat":
        yield source.error("dataset random-ids draws token ids, and chat takes text", (*path, "endpoint"))
    if workload.dataset == "openai" and workload.endpoint != "chat":
        yield source.error("dataset openai goes to endpoint: chat", path)
    for arrivals, key in (("gamma", "burstiness"), ("ramp", "ramp_to")):
        if (workload.arrivals == arrivals) != (getattr(workload, key) is not None):
            yield source.error(f"arrivals: {arrivals} and {key} go together", path)
    if workload.arrivals == "ramp" and workload.request_rate is None:
        yield source.error("arrivals: ramp starts at request_rate, which is missing", path)


def _is_file(name: str) -> bool:
    return _exists(name) and not Path(name).is_dir()


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a name longer than the file system takes
        return False


def objective_mistakes(source: Source, objective: Objective) -> Mistakes:
    """Metrics must exist, and be pushed the way that is better."""
    path: KeyPath = ("objective", "metric")
    if (metric := METRICS.get(objective.metric)) is None:
        yield source.error(_unknown_metric(objective.metric), path)
    elif metric.direction is None:
        message = f"neither more nor less of {metric.name} is better: it may be a constraint, but no objective"
        yield source.error(message, path)
    elif metric.direction != objective.direction:
        message = f"{metric.better} {metric.name} is better; write {metric.direction}"
        yield source.error(message, ("objective", "direction"))
    for index, bound in enumerate(objective.constraints):
        here: KeyPath = ("objective", "constraints", index)
        if bound.metric not in METRICS:
            yield source.error(_unknown_metric(bound.metric), (*here, "metric"))
        if bound.min is not None and bound.max is not None and bound.min > bound.max:
            yield source.error(f"min {bound.min:g} is above max {bound.max:g}: nothing is feasible", here)


def _unknown_metric(name: str) -> str:
    """Also knows a family without its statistic: `ttft_ms` lacks `.p50`."""
    statistics = [metric.removeprefix(f"{name}.") for metric in METRICS if metric.startswith(f"{name}.")]
    if statistics:
        return f"{name!r} needs a statistic: {name}.{statistics[0]} (allowed: {', '.join(statistics)})"
    family, dot, statistic = name.partition(".")
    families = dict.fromkeys(metric.partition(".")[0] for metric in METRICS if dot and "." in metric)
    if (near := nearest(family, families)) and f"{near}.{statistic}" in METRICS:
        return f"unknown metric {name!r}; did you mean {near}.{statistic}?"
    return unknown_word("metric", name, METRICS)


def budget_mistakes(source: Source, budget: Budget) -> Mistakes:
    """The search must get at least the boot of the default."""
    yield from _too_few_boots(source, budget, 2)


def confirm_mistakes(source: Source, budget: Budget, first: Sequence[Assignment]) -> Mistakes:
    """So it must where the settings of `first` are confirmed too."""
    if not budget.confirm_first:
        return
    if not first:
        yield source.error("there is no setting in `first` to confirm", ("budget", "confirm_first"))
    else:
        yield from _too_few_boots(source, budget, budget.sides(len(first)))


def _too_few_boots(source: Source, budget: Budget, sides: int) -> Mistakes:
    kept = sides * budget.confirm_boots
    if budget.max_boots is not None and budget.max_boots <= kept:
        message = (
            f"{budget.max_boots} leaves no boot for the search: {sides} × confirm_boots = {kept} are kept for the "
            "confirmation"
        )
        yield source.error(message, ("budget", "max_boots"))


def first_mistakes(source: Source, first: Sequence[Assignment], space: SearchSpace, base: Assignment) -> Mistakes:
    """Settings to begin with must lie in the space."""
    axes = {axis.name: axis.values for axis in space.axes}
    for index, setting in enumerate(first):
        for knob, value in setting.items():
            if knob not in axes:
                yield source.error(unknown_word("axis", knob, axes), ("first", index, knob))
            elif value not in axes[knob]:
                taken = ", ".join(map(str, axes[knob]))
                yield source.error(f"{value} is not searched (the axis has {taken})", ("first", index, knob))
        chosen = {**base, **setting}
        if any(holds(rule, chosen) for rule in space.forbid):
            yield source.error("is forbidden by the sweeps", ("first", index))


def gate_mistakes(source: Source, gate: GateSpec) -> Mistakes:
    """The eval and the data file must exist, and a confirmation in whose boots the eval runs."""
    match source.data.get("budget"):
        case {"confirm_boots": 0}:
            yield source.error("a gate needs confirm_boots of 1 or more: it scores what is confirmed", ("gate",))
    if gate.data is not None and not _exists(gate.data):
        yield source.error(f"{gate.data}: no such file", ("gate", "data"))
    try:
        rooms.find("evals", gate.eval)
    except (InputError, OSError) as error:
        yield source.error(str(error) if isinstance(error, InputError) else "no such eval", ("gate", "eval"))

"""Check what types cannot express: workloads, objective, budget, first settings and gate of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsabench import rooms
from dsabench.config.files import AcceptServerFile, gate_of
from dsabench.config.mistakes import Mistakes, unknown_word
from dsabench.config.runtime_kinds import runtime_kinds, why_gpus_untold
from dsabench.config.specs import AcceptEval, RuntimeConfig
from dsabench.config.yaml_file import KeyPath, YamlFile
from dsabench.errors import InputError, nearest
from dsabench.model.dataset import DATASETS
from dsabench.model.metrics import METRICS
from dsabench.model.numerics import is_numeric, stated
from dsabench.model.study import Assignment, Budget, GateSpec, Objective, SearchSpace, holds
from dsabench.model.verdict import BOOTS_MIN
from dsabench.model.workload import Workload


def workload_mistakes(source: YamlFile, workloads: tuple[Workload, ...]) -> Mistakes:
    """Check that names are unique and files exist."""
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
        yield from _draw_mistakes(source, workload, ("workloads", index))
        yield from _capacity_mistakes(source, workload, ("workloads", index))


def tokenizer_mistakes(source: YamlFile, workloads: tuple[Workload, ...], runtime: RuntimeConfig) -> Mistakes:
    """Text datasets need a tokenizer. Only the reference runtime reports its own."""
    if not runtime_kinds()[runtime.kind].needs_tokenizer:
        return
    for index, workload in enumerate(workloads):
        if not workload.counts_text:
            continue
        path: KeyPath = ("workloads", index)
        if workload.tokenizer is None:
            reason = f"dataset {workload.dataset} counts tokens of text; name a folder with tokenizer.json"
            yield source.error(f"missing key 'tokenizer': {reason}", path)
        if runtime.base.get("tokenizer") is False:
            reason = "sends text, and runtime.base says tokenizer: false; take random-ids (with sessions for prefixes)"
            yield source.error(f"dataset {workload.dataset} {reason}", (*path, "dataset"))


def _dataset_mistakes(source: YamlFile, workload: Workload, path: KeyPath) -> Mistakes:
    """Check the keys that the dataset or the arrivals need, and that files exist. URLs are only checked when they are
    used.
    """
    for key in DATASETS[workload.dataset].needs:
        if getattr(workload, key) is None:
            yield source.error(f"missing key {key!r}: dataset {workload.dataset} needs it", path)
    place = workload.dataset_path
    if place is not None and not place.startswith(("http://", "https://")) and rooms.find_data(place) is None:
        yield source.error(f"{place}: no such file", (*path, "dataset_path"))
    if workload.dataset == "random-ids" and workload.endpoint == "chat":
        yield source.error("dataset random-ids draws token ids, and chat takes text", (*path, "endpoint"))
    turns = 1 if workload.shared_prefix is None else workload.shared_prefix.turns
    if (DATASETS[workload.dataset].only_chat or turns > 1) and workload.endpoint != "chat":
        yield source.error(f"dataset {workload.dataset}{' with turns' * (turns > 1)} goes to endpoint: chat", path)
    for arrivals, key in (("gamma", "burstiness"), ("ramp", "ramp_to")):
        if (workload.arrivals == arrivals) != (getattr(workload, key) is not None):
            yield source.error(f"arrivals: {arrivals} and {key} go together", path)
    if workload.arrivals == "ramp" and workload.request_rate is None:
        yield source.error("arrivals: ramp starts at request_rate, which is missing", path)


def _capacity_mistakes(source: YamlFile, workload: Workload, path: KeyPath) -> Mistakes:
    search, here = workload.capacity, (*path, "capacity")
    if search is None:
        return
    if workload.slo is None:
        yield source.error("is the highest load that meets the slo, which is missing", here)
    if workload.arrivals == "ramp":
        yield source.error("goes without arrivals: ramp", here)
    if workload.is_paced_by_data:
        yield source.error("needs a request_rate: without one the trace says when requests go", here)
    key = workload.load_key
    highest = getattr(workload, key)
    if highest is None:
        yield source.error("needs request_rate or max_concurrency: the highest load to try", here)
    elif search.lowest >= highest:
        yield source.error(f"must be less than {key}, {highest:g}", (*here, "lowest"))
    elif search.start is not None and not search.lowest <= search.start <= highest:
        yield source.error(f"must be from lowest, {search.lowest:g}, to {key}, {highest:g}", (*here, "start"))
    for name in ("lowest", "start") if key == "max_concurrency" else ():
        load = getattr(search, name)
        if load is not None and load != round(load):
            yield source.error("must be a whole number of requests in flight", (*here, name))


def _draw_mistakes(source: YamlFile, workload: Workload, path: KeyPath) -> Mistakes:
    if workload.part is not None:
        yield source.error("is set in records; a config names dataset_split", (*path, "part"))
    if workload.dataset_split is not None and workload.draw == "exact":
        yield source.error("draw: exact takes the whole dataset, as bench_serving does", (*path, "dataset_split"))
    if workload.dataset == "burstgpt" and (workload.draw or (workload.trace and workload.trace.rounds > 1)):
        yield source.error("dataset burstgpt has one round and no draw: exact", path)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a name that is too long for the file system
        return False


def objective_mistakes(source: YamlFile, objective: Objective) -> Mistakes:
    """Check that metrics exist, and that the direction is the better one."""
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


def numerics_mistakes(source: YamlFile, objective: Objective, space: SearchSpace, base: Assignment) -> Mistakes:
    """What keeps the default's numerics has to know them."""
    unknown = [axis.name for axis in space.axes if is_numeric(axis.name) and stated(base, axis.name) is None]
    if objective.numerics == "same" and unknown:
        message = f"same: runtime.base does not say {unknown[0]}, an axis that may change answers: what it is compared with is not known"
        yield source.error(message, ("objective", "numerics"))


def _unknown_metric(name: str) -> str:
    """Explain an unknown metric, also one without its statistic: `ttft_ms` lacks `.p50`."""
    statistics = [metric.removeprefix(f"{name}.") for metric in METRICS if metric.startswith(f"{name}.")]
    if statistics:
        return f"{name!r} needs a statistic: {name}.{statistics[0]} (allowed: {', '.join(statistics)})"
    family, dot, statistic = name.partition(".")
    families = dict.fromkeys(metric.partition(".")[0] for metric in METRICS if dot and "." in metric)
    if (near := nearest(family, families)) and f"{near}.{statistic}" in METRICS:
        return f"unknown metric {name!r}; did you mean {near}.{statistic}?"
    return unknown_word("metric", name, METRICS)


def budget_mistakes(source: YamlFile, budget: Budget) -> Mistakes:
    """The search needs at least the boot of the default, and an early look some boots that it may save."""
    yield from _too_few_boots(source, budget, 2)
    if budget.stop_when_decided and budget.confirm_boots <= BOOTS_MIN:
        message = f"the first look is at {BOOTS_MIN} boots a side, so confirm_boots must be {BOOTS_MIN + 1} or more"
        yield source.error(message, ("budget", "stop_when_decided"))
    if budget.stop_when_decided and budget.others_confirmed is not None:
        message = f"goes without {budget.others_confirmed}, whose settings need all boots"
        yield source.error(message, ("budget", "stop_when_decided"))
    if budget.ablate and (why := budget.why_no_ablation) is not None:
        yield source.error(why, ("budget", "ablate"))


def gpu_mistakes(source: YamlFile, sections: Mapping[str, Any]) -> Mistakes:
    """GPU-hours can be limited, and have a price, only where the GPUs of a setting are known."""
    runtime: RuntimeConfig = sections["runtime"]
    price, budget, objective = (sections.get(name) for name in ("price_per_gpu_hour", "budget", "objective"))
    if (why := why_gpus_untold(runtime.kind)) is not None:
        if price is not None:
            yield source.error(why, ("price_per_gpu_hour",))
        if budget is not None and budget.gpu_hours is not None:
            yield source.error(why, ("budget", "gpu_hours"))
    if objective is None or price is not None:
        return
    bounds = enumerate(objective.constraints)
    named: list[tuple[str, KeyPath]] = [(objective.metric, ("objective", "metric"))]
    named += [(bound.metric, ("objective", "constraints", index, "metric")) for index, bound in bounds]
    for name, place in named:
        if name.startswith("cost_"):
            yield source.error(f"{name} needs price_per_gpu_hour", place)


def confirm_mistakes(source: YamlFile, budget: Budget, first: Sequence[Assignment]) -> Mistakes:
    """The same if the settings of `first` are confirmed too."""
    if budget.others_confirmed is None:
        return
    if budget.confirm_first and not first:
        yield source.error("there is no setting in `first` to confirm", ("budget", "confirm_first"))
    else:
        yield from _too_few_boots(source, budget, budget.sides(len(first)))


def _too_few_boots(source: YamlFile, budget: Budget, sides: int) -> Mistakes:
    kept = sides * budget.confirm_boots
    if budget.max_boots is not None and budget.max_boots <= kept:
        message = (
            f"{budget.max_boots} leaves no boot for the search: {sides} × confirm_boots = {kept} are kept for the "
            "confirmation"
        )
        yield source.error(message, ("budget", "max_boots"))


def first_mistakes(
    source: YamlFile, at: KeyPath, first: Sequence[Assignment], space: SearchSpace, base: Assignment
) -> Mistakes:
    """Settings of `first` must lie in the space."""
    axes = {axis.name: axis.values for axis in space.axes}
    for index, setting in enumerate(first):
        for knob, value in setting.items():
            if knob not in axes:
                yield source.error(unknown_word("axis", knob, axes), (*at, index, knob))
            elif value not in axes[knob]:
                taken = ", ".join(map(str, axes[knob]))
                yield source.error(f"{value} is not searched (the axis has {taken})", (*at, index, knob))
        chosen = {**base, **setting}
        if any(holds(rule, chosen) for rule in space.forbid):
            yield source.error("is forbidden by the sweeps", (*at, index))


def accept_mistakes(
    source: YamlFile,
    at: KeyPath,
    server: AcceptServerFile,
    evals: Sequence[AcceptEval],
    loads: Sequence[str],
) -> Mistakes:
    """Evals and their data exist, and what stands beside a load names one."""
    for load in server.beside:
        if load not in loads:
            yield source.error(unknown_word("workload", load, loads), (*at, "beside", load))
    for index, one in enumerate(evals):
        place: KeyPath = (*at, "evals", index)
        named = place if isinstance(server.evals[index], str) else (*place, "eval")
        yield from _eval_mistakes(source, one.eval, named)
        if one.data is not None and not _exists(one.data):
            yield source.error(f"{one.data}: no such file", (*place, "data"))


def _eval_mistakes(source: YamlFile, name: str, place: KeyPath) -> Mistakes:
    try:
        rooms.find("evals", name)
    except (InputError, OSError) as error:
        yield source.error(str(error) if isinstance(error, InputError) else "no such eval", place)


def gate_mistakes(source: YamlFile, entry: str | GateSpec | tuple[str | GateSpec, ...]) -> Mistakes:
    """The evals and their data must exist, and the gate needs boots in which the evals run."""
    places: dict[KeyPath, str | GateSpec] = (
        {("gate", index): one for index, one in enumerate(entry)} if isinstance(entry, tuple) else {("gate",): entry}
    )
    match source.data.get("budget"):
        case {"confirm_boots": 0} if any(gate_of(one).ask == "finalists" for one in places.values()):
            why = "it scores what is confirmed; with `ask: settings` every setting of the search"
            yield source.error(f"a gate needs confirm_boots of 1 or more: {why}", ("gate",))
        case {"confirm_second": True}:
            yield source.error("goes without a gate, which scores one setting", ("budget", "confirm_second"))
    for place, one in places.items():
        gate = gate_of(one)
        if gate.data is not None and not _exists(gate.data):
            yield source.error(f"{gate.data}: no such file", (*place, "data"))
        yield from _eval_mistakes(source, gate.eval, place if isinstance(one, str) else (*place, "eval"))

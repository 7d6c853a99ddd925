"""HiSparse's buffers: which settings a full rank can hold, and the table of the best."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dsabench.config.specs import RoleConfig, StudyConfig, TopologyConfig
from dsabench.errors import InputError
from dsabench.model.hardware import accelerator
from dsabench.model.knobs import of_role
from dsabench.model.record import Measured, Metric, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import ImpliedKnobs, SearchSpace
from dsabench.model.study_result import StudyResult
from dsabench.model.topology import SINGLE, Role
from dsabench.model.tuned_table import BufferRule, TunedTable
from dsabench.model.value import KnobValue
from dsabench.reference.engine.sizes import SIZES
from dsabench.results.ablation import has_gain
from dsabench.runtimes.kinds import make_runtime
from dsabench.sglang.memory_forecast import GIB
from dsabench.sglang.model_config import full_widths
from dsabench.tuners.hisparse_memory import Demand, DevicePool, Rank, ReferencePool, require_pool
from dsabench.tuners.of_sweep import TunePlan, in_words, table_of_sweep, why_not_better, why_unfinished
from dsabench.tuners.target import target_of

_BUFFER, _RATIO, _BLOCK = (
    "hisparse_device_buffer_size",
    "hisparse_host_to_device_ratio",
    "hisparse_swap_in_block_size",
)
_HITS = "hot_buffer_hit_rate"
_AXES = {"hisparse", "kv_cache_dtype", "prefill_backend", "decode_backend", _BUFFER, _RATIO, _BLOCK}
_BASELINES: tuple[Mapping[str, KnobValue], ...] = (
    {"hisparse": False, "kv_cache_dtype": "bfloat16"},
    {"hisparse": False, "kv_cache_dtype": "fp8_e4m3"},
    {"hisparse": True},
)


Pools = Mapping[tuple[str, int], int]
"""(KV dtype, ratio) → tokens of the device pool; ratio `OFF` is HiSparse off, whose indexer keeps keys of the pool alone."""
OFF = 1


@dataclass(frozen=True, slots=True)
class _Load:
    """The largest that the workloads ask of a pool."""

    requests: int
    longest: int | None
    """Tokens of a request, prompt and answer; None where a dataset decides it."""


def plan_hisparse(config: StudyConfig, rank: DevicePool, host_bytes: float, *, same_pool: bool = False) -> TunePlan:
    """Pin each setting's device pool to what a full rank has under it, and forbid the buffers that do not fit.

    With `same_pool` all have the smallest of these: what settings cost at equal tokens, not at equal memory. Where the axes are of one
    role (`decode: {hisparse: …}`), so are the pools.

    Raises:
        InputError: another axis, a baseline is missing, no pool, or nothing fits; with the arithmetic.

    """
    role = role_of(config)
    if role is None:
        return _plan_of_all(config, rank, host_bytes, same_pool=same_pool)
    plan = _plan_of_all(of_role_alone(config), rank, host_bytes, same_pool=same_pool, instances=role.instances)

    def named(settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        known = {*(axis.name for axis in config.space.axes), *config.runtime.base, f"{role.role}.max_total_tokens"}
        return {own if (own := f"{role.role}.{name}") in known else name: value for name, value in settings.items()}

    space = config.space.model_copy(
        update={
            "forbid": (*config.space.forbid, *map(named, plan.config.space.forbid[len(config.space.forbid) :])),
            "follow": tuple(
                ImpliedKnobs(when=named(one.when), then=named(one.then)) for one in plan.config.space.follow
            ),
            "enqueued": tuple(map(named, plan.config.space.enqueued)),
        }
    )
    changed = config.model_copy(update={"space": space, "budget": plan.config.budget})
    return TunePlan(changed, plan.arithmetic)


def role_of(config: StudyConfig) -> Role | None:
    """The role of a deployment whose settings the axes are; None where they are everybody's.

    Raises:
        InputError: several roles.

    """
    names = sorted({role for axis in config.space.axes if (role := of_role(axis.name)[0]) is not None})
    if len(names) > 1:
        raise InputError(f"{config.name}: tune hisparse takes axes of one role, here: {', '.join(names)}")
    topology = config.default.topology
    return next((role for role in topology.roles if [role.role] == names), None) if topology is not None else None


def _knobs_of(spec: RuntimeSpec, role: Role) -> Mapping[str, KnobValue]:
    """Those that the servers of a role have."""
    roles = (spec.topology or SINGLE).roles
    return next(knobs for one, knobs in zip(roles, spec.of_servers, strict=True) if one.role == role.role)


def of_role_alone(config: StudyConfig) -> StudyConfig:
    """The study as if one server of the axes' role stood alone; as it is where they are everybody's."""
    role = role_of(config)
    if role is None:
        return config

    def bare(settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        return {of_role(name)[1]: value for name, value in settings.items()}

    base = _knobs_of(config.default, role)
    alone = TopologyConfig(roles=(RoleConfig(nodes=role.nodes),))
    space = SearchSpace(
        axes=tuple(axis.model_copy(update={"name": of_role(axis.name)[1]}) for axis in config.space.axes),
        when={of_role(name)[1]: bare(conditions) for name, conditions in config.space.when.items()},
        forbid=tuple(map(bare, config.space.forbid)),
    )
    return config.model_copy(
        update={
            "runtime": config.runtime.model_copy(update={"base": base, "topology": alone}),
            "space": space,
            "first": tuple(map(bare, config.first)),
        }
    )


def _plan_of_all(
    config: StudyConfig, rank: DevicePool, host_bytes: float, *, same_pool: bool = False, instances: int = 1
) -> TunePlan:
    _require_study(config)
    load, ratios = _load_of(config, instances), _values(config, _RATIO)
    dtypes = [d for d in ("bfloat16", "fp8_e4m3") if d in _named(config, "kv_cache_dtype")]
    own: dict[tuple[str, int], int] = {
        (dtype, ratio): require_pool(rank, rank.kv_bytes[dtype], ratio)
        for dtype, ratio in itertools.product(dtypes, (OFF, *ratios))
    }
    pools = dict.fromkeys(own, min(own.values())) if same_pool else own
    lines = [_pool_line(rank, dtype, ratio, own[dtype, ratio], load) for dtype, ratio in own]
    if same_pool:
        lines.append(f"--max-total-tokens {min(own.values()):,}: the smallest of these, the same for every setting")
    buffers = _buffers(config, rank.kv_bytes, pools, load, host_bytes)
    lines += [one.line for one in buffers]
    if all(one.why_not for one in buffers):
        raise InputError("no setting of HiSparse fits: " + "; ".join(lines))
    forbid = [one.setting for one in buffers if one.why_not]
    follow = tuple(
        ImpliedKnobs(when=_setting(dtype, ratio), then={"max_total_tokens": tokens})
        for (dtype, ratio), tokens in pools.items()
    )
    promising = _promising(buffers, load)
    lines.append(f"first: {', '.join(f'{name}={value}' for name, value in promising[0].items())}")
    changed = {"forbid": (*config.space.forbid, *forbid), "follow": follow, "enqueued": tuple(promising)}
    space = config.space.model_copy(update=changed)
    # A buffer that beats one baseline and loses to another is no default: all of them are confirmed.
    budget = config.budget.model_copy(update={"confirm_first": True})
    return TunePlan(config.model_copy(update={"space": space, "budget": budget}), tuple(lines))


def _load_of(config: StudyConfig, instances: int) -> _Load:
    """Of a rank of each of so many servers that share the requests; under DP attention the ranks of a server share them, too."""
    base = config.runtime.base
    shares = instances * (int(base.get("dp_size", 1)) if base.get("dp_attention") is True else 1)
    return _Load(
        max(-(-(load.max_concurrency or load.num_prompts) // shares) for load in config.workloads),
        max(
            (load.input_len + load.output_len for load in config.workloads if load.input_len and load.output_len),
            default=None,
        ),
    )


def _setting(dtype: str, ratio: int) -> dict[str, KnobValue]:
    on: dict[str, KnobValue] = {"hisparse": False} if ratio == OFF else {"hisparse": True, _RATIO: ratio}
    return {**on, "kv_cache_dtype": dtype}


def _pool_line(rank: DevicePool, dtype: str, ratio: int, tokens: int, load: _Load) -> str:
    setting = f"{dtype}, HiSparse off" if ratio == OFF else f"{dtype}, ratio {ratio}"
    line = f"{setting}: {rank.describe(rank.kv_bytes[dtype], ratio)}"
    if load.longest is None or ratio != OFF:
        return line
    return f"{line}; // {load.longest:,} = {tokens // load.longest} requests of {load.longest:,} tokens"


@dataclass(frozen=True, slots=True)
class _Buffer:
    """One setting of HiSparse, and what it asks of a rank."""

    setting: dict[str, KnobValue]
    dtype: str
    demand: Demand
    why_not: str | None
    """Why it cannot run; None where it can."""

    @property
    def line(self) -> str:
        """The arithmetic, for people."""
        return f"{self.dtype}, {self.demand.line()}" + ("" if self.why_not is None else f": left out, {self.why_not}")


def _buffers(
    config: StudyConfig, kv_bytes: Mapping[str, int], pools: Pools, load: _Load, host_bytes: float
) -> list[_Buffer]:
    """Every setting of the axes with HiSparse on."""
    target, sizes = target_of(config), _values(config, _BUFFER)
    found = []
    for (dtype, ratio), tokens in pools.items():
        for size in () if ratio == OFF else sizes:
            demand = Demand(size, ratio, kv_bytes[dtype], tokens, target.layers, load.longest)
            why = demand.why_not(target.index_topk, host_bytes, load.requests)
            found.append(_Buffer({**_setting(dtype, ratio), _BUFFER: size}, dtype, demand, why))
    return found


def _promising(buffers: Sequence[_Buffer], load: _Load) -> list[dict[str, KnobValue]]:
    """For each KV dtype the setting under which the most requests decode at once, the best first; of a tie the smallest ratio, then the
    largest buffer, which misses least.
    """

    def rank(one: _Buffer) -> tuple[int, int, int]:
        demand, held = one.demand, one.demand.held_requests
        at_once = min(demand.live_requests, load.requests if held is None else held, load.requests)
        return at_once, -demand.ratio, demand.device_buffer_size

    ranked = sorted((one for one in buffers if one.why_not is None), key=rank, reverse=True)
    best = {one.dtype: one.setting for one in reversed(ranked)}
    return [one.setting for one in ranked if best[one.dtype] is one.setting]


def pool_of(config: StudyConfig, *, gpus: int) -> DevicePool:
    """A rank of the full model on so many GPUs, attention split as the config's own base says; of the reference runtime what its base
    gives.

    Raises:
        InputError: no hardware named, or a model whose widths are not known.

    """
    config = of_role_alone(config)
    if config.runtime.kind == "reference":
        tokens = config.runtime.base.get("max_total_tokens")
        if not isinstance(tokens, int):
            raise InputError("runtime.base.max_total_tokens: tune hisparse needs it: the device pool with HiSparse off")
        return ReferencePool(SIZES[config.runtime.model], tokens)
    if config.runtime.hardware is None:
        raise InputError("runtime.hardware: tune hisparse needs it: whose memory a full rank has")
    target, widths = target_of(config), full_widths(config.runtime.model)
    share = config.runtime.base.get("mem_fraction_static", 0.85)
    assert isinstance(share, (int, float))
    device = accelerator(config.runtime.hardware)
    return Rank(widths, max(1, widths.heads // target.heads_per_rank), gpus, device.memory_gib, float(share))


def ranks_per_host(config: StudyConfig) -> int:
    """Ranks that share the host memory of a machine, each with buffers of its own: one for a slice, eight on a full node."""
    config = of_role_alone(config)
    spec = config.default
    machines = sum(role.instances * role.nodes for role in (spec.topology or SINGLE).roles)
    return max(1, -(-make_runtime(config.runtime).gpus(spec) // machines))


def host_bytes_of(config: StudyConfig, gib: float | None, lanes: int) -> float:
    """Host memory of a rank in bytes: as given, else what is free on this machine, shared by its ranks and lanes.

    Raises:
        InputError: this machine does not say what is free.

    """
    if gib is not None:
        return gib * GIB
    return free_host_bytes(Path("/proc/meminfo").read_text()) // (lanes * ranks_per_host(config))


@dataclass(frozen=True, slots=True)
class HitRate:
    """How many of the tokens that decode steps selected were in the device buffer."""

    workload: str
    kv_cache_dtype: str
    device_buffer_size: int
    measured: float
    """Mean over the boots."""
    boots: int
    foreseen: float | None
    """By what the largest buffer saw: how long ago each of its hits was used."""
    foreseen_from: int
    """That buffer's size."""


def hit_rates(records: Iterable[Record]) -> list[HitRate]:
    """By workload, KV dtype and buffer; none where the runtime does not count them."""
    found: dict[tuple[str, str, int], list[Mapping[str, Metric]]] = {}
    for record in records:
        knobs, outcome = record.trial.runtime.knobs, record.outcome
        size = knobs.get(_BUFFER)
        if isinstance(outcome, Measured) and _HITS in outcome.metrics and isinstance(size, int):
            key = record.trial.workload.name, str(knobs.get("kv_cache_dtype")), size
            found.setdefault(key, []).append(outcome.metrics)
    largest: dict[tuple[str, str], int] = {}
    for workload, dtype, size in found:
        largest[workload, dtype] = max(size, largest.get((workload, dtype), 0))
    rates = []
    for (workload, dtype, size), boots in sorted(found.items()):
        source = largest[workload, dtype]
        told = [one[name] for one in found[workload, dtype, source] if (name := f"{_HITS}.of_{size}") in one]
        foreseen = fmean(one.value for one in told) if told and size < source else None
        measured = fmean(one[_HITS].value for one in boots)
        rates.append(HitRate(workload, dtype, size, measured, len(boots), foreseen, source))
    return rates


def table_of(config: StudyConfig, result: StudyResult, command: str) -> tuple[TunedTable | None, str]:
    """The table of the best setting, and one line on where it stands."""
    if (why := why_unfinished(config, result)) is not None:
        return None, f"unfinished: {why}"
    if (why := why_not_better(config, result)) is not None:
        return None, f"not faster than the default: {why}"
    assert result.best is not None, "it is better"
    role, best = role_of(config), result.best.spec
    knobs = best.knobs if role is None else _knobs_of(best, role)
    if knobs.get("hisparse") is not True:
        return None, "the best setting has HiSparse off: no table"
    for rival in result.rivals:
        against = [one for one in rival.verdicts if one.metric == config.objective.metric]
        if not has_gain(config.objective, against):
            return None, f"not faster than the baseline {rival.label}: {in_words(against)}"
    table = table_of_sweep(
        _rule(knobs),
        of_role_alone(config),
        result,
        (
            _pool_condition(config, knobs),
            *_hit_conditions(result, knobs),
            *(() if role is None else (f"on the {role.role} servers",)),
        ),
        command,
    )
    return table, f"faster; {table.evidence.label}" + (
        ": hit rates are not the model's, so emit takes it only with --allow-simulated"
        if table.evidence.label == "simulated"
        else ""
    )


def _hit_conditions(result: StudyResult, knobs: Mapping[str, KnobValue]) -> list[str]:
    chosen = (
        one
        for one in hit_rates(result.records)
        if (one.kv_cache_dtype, one.device_buffer_size) == (knobs.get("kv_cache_dtype"), knobs[_BUFFER])
    )
    return [
        f"hit rate under {one.workload} {one.measured:.3f}"
        + ("" if one.foreseen is None else f", {one.foreseen:.3f} foreseen from a buffer of {one.foreseen_from}")
        for one in chosen
    ]


def _pool_condition(config: StudyConfig, knobs: Mapping[str, KnobValue]) -> str:
    if config.runtime.kind == "reference":
        return f"device pool of {knobs['max_total_tokens']} tokens here, and as many bytes for each baseline"
    same = len({tokens for one in config.space.follow for tokens in one.then.values()}) == 1
    of = (
        "on every side, smaller than HiSparse off would have"
        if same
        else "here, and a full rank's own for each baseline"
    )
    return f"device pool of {knobs['max_total_tokens']} tokens {of}"


def _rule(knobs: Mapping[str, KnobValue]) -> BufferRule:
    buffer, ratio, block = (knobs.get(name) for name in (_BUFFER, _RATIO, _BLOCK))
    assert isinstance(buffer, int)
    assert isinstance(ratio, int)
    return BufferRule(
        device_buffer_size=buffer,
        host_to_device_ratio=ratio,
        swap_in_block_size=block if isinstance(block, int) else None,
    )


def _require_study(config: StudyConfig) -> None:
    axes = {axis.name for axis in config.space.axes}
    if missing := {"hisparse", _BUFFER, _RATIO} - axes:
        raise InputError(f"{config.name}: tune hisparse needs the axis {min(missing)}")
    if others := axes - _AXES:
        raise InputError(f"{config.name}: the axis {min(others)} is no setting of HiSparse")
    measured = [config.runtime.base, *({**config.runtime.base, **first} for first in config.first)]
    for wanted in _BASELINES:
        if not any(all(one.get(name) == value for name, value in wanted.items()) for one in measured):
            said = ", ".join(f"{name}: {value}" for name, value in wanted.items())
            raise InputError(f"{config.name}: base and first leave out the baseline {{{said}}}")


def _values(config: StudyConfig, name: str) -> list[int]:
    found = next(axis.values for axis in config.space.axes if axis.name == name)
    return sorted(value for value in found if isinstance(value, int))


def _named(config: StudyConfig, name: str) -> set[KnobValue]:
    axis = next((axis.values for axis in config.space.axes if axis.name == name), ())
    return {*axis, *([config.runtime.base[name]] if name in config.runtime.base else [])}


def free_host_bytes(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo, in bytes.

    Raises:
        InputError: it is not there.

    """
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise InputError("/proc/meminfo has no MemAvailable; say --host-memory-gib")

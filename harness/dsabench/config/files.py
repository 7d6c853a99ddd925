"""The kinds of YAML file: their fields, and their JSON Schema (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, PositiveFloat, Tag, model_validator

from dsabench.config.goals import Goal
from dsabench.config.knob_types import KnobAxes, KnobConditions, KnobSettings
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import AcceptEval, HisparseMemory, KernelTimes, RuntimeConfig
from dsabench.config.yaml_file import KeyPath
from dsabench.model.bottleneck import BindingLimit
from dsabench.model.evals import EvalSpec, SafeName
from dsabench.model.metrics import METRICS, OBJECTIVES
from dsabench.model.published import PublishedRun
from dsabench.model.study import Budget, GateSpec, MetricLimit, Objective, ProposerSpec
from dsabench.model.value import FrozenMap, Value
from dsabench.model.workload import Workload


class SweepFile(Value):
    """A search space: `sweeps/NAME.yaml`, or inline in a config."""

    axes: KnobAxes
    """Knob → the values to try."""
    when: KnobConditions = Field(default_factory=dict)
    """Knob → the settings under which its axis is active; otherwise the base's value is used."""
    forbid: tuple[KnobSettings, ...] = ()
    """Combinations of settings (including the base) that are never tried."""
    when_bound: FrozenMap[BindingLimit] = Field(default_factory=dict)
    """Knob → what has to limit the best setting so far for its axis to come early in the start-up of `gp`. Forbids nothing."""


def _sweep_form(given: object) -> str:
    return "name" if isinstance(given, str) else "inline"


SweepEntry = Annotated[
    Annotated[str, Tag("name"), Field(min_length=1, max_length=200)] | Annotated[SweepFile, Tag("inline")],
    Discriminator(_sweep_form),
]


def _objective_form(given: object) -> str:
    return "named goal" if isinstance(given, Mapping) and "goal" in given else "plain objective"


ObjectiveEntry = Annotated[
    Annotated[Objective, Tag("plain objective")] | Annotated[Goal, Tag("named goal")], Discriminator(_objective_form)
]


def _gate_form(given: object) -> str:
    return "name" if isinstance(given, str) else "list" if isinstance(given, (list, tuple)) else "gate"


_OneGate = Annotated[str, Tag("name"), Field(min_length=1, max_length=200)] | Annotated[GateSpec, Tag("gate")]
GateEntry = Annotated[
    _OneGate
    | Annotated[
        tuple[Annotated[_OneGate, Discriminator(_gate_form)], ...], Tag("list"), Field(min_length=1, max_length=20)
    ],
    Discriminator(_gate_form),
]
"""A name is an eval with the default margin; of a list the setting must pass every eval."""


def gate_of(entry: str | GateSpec) -> GateSpec:
    """One eval of the gate."""
    return entry if isinstance(entry, GateSpec) else GateSpec(eval=entry)


def gates_of(entry: str | GateSpec | tuple[str | GateSpec, ...] | None) -> GateSpec | tuple[GateSpec, ...] | None:
    """What a config holds of it."""
    if entry is None:
        return None
    if not isinstance(entry, tuple):
        return gate_of(entry)
    return gate_of(entry[0]) if len(entry) == 1 else tuple(map(gate_of, entry))


class LaunchFile(Value):
    """A server without a study, for `dsabench launch`: `configs/recipes/NAME.yaml`."""

    name: SafeName
    """Name of the recipe."""
    runtime: RuntimeConfig
    """The runtime, the model and the settings."""


class TuneFile(Value):
    """A tune of `dsabench autotune`. Keys that are left out are as in the config; `base` starts from the sweep's winner."""

    base: KnobSettings = Field(default_factory=dict)
    """Settings that the tune keeps whatever the sweep found."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)] = ()
    """Load points of the tune."""
    sweeps: tuple[SweepEntry, ...] = ()
    """The axes of the tune."""
    first: tuple[KnobSettings, ...] = ()
    """Settings to measure first."""
    proposer: ProposerSpec = ProposerSpec()
    """The strategy that chooses the next setting."""
    objective: ObjectiveEntry | None = None
    """What the tune optimises."""
    budget: Budget = Budget()
    """Limits of the tune."""
    gate: GateEntry | None = None
    """The accuracy evals that a value must pass."""


class KernelTuneFile(TuneFile):
    """`tune flashmla-auto` in a config: which kernel times it takes."""

    kernels: KernelTimes = KernelTimes()
    """The kernel times to measure."""


class HisparseTuneFile(TuneFile):
    """`tune hisparse` in a config."""

    memory: HisparseMemory = HisparseMemory()
    """Memory of the full deployment."""


class MtpTuneFile(TuneFile):
    """`tune mtp` in a config."""

    accept_rate: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of drafts that text has accepted; null takes the measured one."""


class AutotuneFile(Value):
    """What `dsabench autotune` tunes after the sweep. A tune that is left out is skipped."""

    flashmla_auto: KernelTuneFile | None = None
    """Which sparse prefill kernel a batch gets."""
    mha_threshold: TuneFile | None = None
    """Up to which length dense attention prefills."""
    hisparse: HisparseTuneFile | None = None
    """HiSparse's buffers."""
    mtp: MtpTuneFile | None = None
    """Draft steps by batch size."""
    proof: Annotated[int, Field(ge=2, le=50)] = 3
    """Boots with and without each table, in turns."""


AcceptEvalEntry = Annotated[
    Annotated[str, Tag("name"), Field(min_length=1, max_length=200)] | Annotated[AcceptEval, Tag("gate")],
    Discriminator(_gate_form),
]


class AcceptServerFile(Value):
    """A server of `dsabench accept`."""

    name: SafeName
    """Names its study."""
    base: KnobSettings = Field(default_factory=dict)
    """Settings over those of `runtime.base`."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)] = ()
    """Loads; those of the config if left out."""
    beside: FrozenMap[str] = Field(default_factory=dict)
    """Workload → the published run that stands beside it (`sweeps/published/NAME.yaml`)."""
    evals: tuple[AcceptEvalEntry, ...] = ()
    """Evals, asked after the loads in the same boot."""


def _journals_form(given: object) -> str:
    return "name" if isinstance(given, str) else "list"


class FirstFile(Value):
    """What a study begins with, where earlier studies or kernel times tell something."""

    journals: Annotated[
        Annotated[str, Tag("name"), Field(min_length=1)]
        | Annotated[tuple[str, ...], Tag("list"), Field(min_length=1, max_length=20)],
        Discriminator(_journals_form),
    ] = Field((), alias="from")
    """Results folders, or journals, of earlier studies. Records of the same model, hardware and version count."""
    kernels: str | None = Field(None, min_length=1)
    """A folder of kernel times (`dsabench kernels bench`) of the same hardware: what they let expect to be fast comes first."""
    winners: int = Field(1, ge=0, le=20)
    """Settings of theirs that are measured first."""
    settings: tuple[KnobSettings, ...] = ()
    """Settings to measure before them."""

    @model_validator(mode="after")
    def _some_source(self) -> FirstFile:
        if not self.journals and self.kernels is None:
            raise ValueError("needs `from` or `kernels`")
        return self


def _first_form(given: object) -> str:
    return "journals" if isinstance(given, Mapping) else "settings"


FirstEntry = Annotated[
    Annotated[tuple[KnobSettings, ...], Tag("settings")] | Annotated[FirstFile, Tag("journals")],
    Discriminator(_first_form),
]


class ConfigFile(Value):
    """A study on one machine: `configs/NAME.yaml`."""

    name: SafeName
    """Name of the study and of its folder in results/."""
    runtime: RuntimeConfig
    """The runtime, the model and the default settings."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)]
    """Load points. Each setting is measured under all of them in one boot."""
    sweeps: tuple[SweepEntry, ...] = ()
    """Names of sweeps/NAME.yaml, paths, or inline spaces. Together they form one joint space."""
    first: FirstEntry = ()
    """Settings to measure first, in this order. Axes that are not named keep the base's value. Or `from`: journals of earlier studies."""
    proposer: ProposerSpec = ProposerSpec()
    """The strategy that chooses the next setting."""
    objective: ObjectiveEntry
    """What is optimised, and its constraints; or a named goal."""
    budget: Budget = Budget()
    """Limits of the study."""
    gate: GateEntry | None = None
    """The accuracy eval that the best setting must pass, or several; null if no setting changes answers."""
    price_per_gpu_hour: PositiveFloat | None = None
    """Dollars for an hour of one GPU: forecasts then name their cost, and trials have `cost_per_million_tokens_usd`."""
    autotune: AutotuneFile = AutotuneFile()
    """What `dsabench autotune` tunes after the sweep."""
    accept: tuple[AcceptServerFile, ...] = ()
    """The servers of `dsabench accept`, with their loads and evals."""


Form = Literal["config", "sweep", "launch", "published", "eval"]
Schema = dict[str, Any]

FORMS: dict[Form, type[BaseModel]] = {
    "config": ConfigFile,
    "sweep": SweepFile,
    "launch": LaunchFile,
    "published": PublishedRun,
    "eval": EvalSpec,
}


@cache
def json_schema(form: Form = "config") -> Schema:
    """The schema of one kind of file. It is shared between calls, so do not change it."""
    schema = FORMS[form].model_json_schema()
    definitions = schema.get("$defs", {})
    kinds = [
        kind for kind, info in runtime_kinds().items() if (info.is_launched if form == "launch" else info.is_driven)
    ]
    narrowed: tuple[tuple[type[BaseModel], str, Iterable[str]], ...] = (
        (Objective, "metric", OBJECTIVES),
        (MetricLimit, "metric", sorted(METRICS)),
        (RuntimeConfig, "kind", kinds),
    )
    for model, key, allowed in narrowed:
        if model.__name__ in definitions:
            definitions[model.__name__]["properties"][key]["enum"] = list(allowed)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def allowed_keys(form: Form, path: KeyPath) -> tuple[str, ...]:
    """The allowed keys of the mapping at `path`; empty if any key is allowed."""
    return tuple(dict.fromkeys(key for branch in _at(form, path) for key in branch.get("properties", {})))


def choices(form: Form, path: KeyPath) -> tuple[str, ...]:
    """The allowed texts at `path`; empty if there is no short list."""
    listed = (option for branch in _at(form, path) for option in (*branch.get("enum", ()), branch.get("const")))
    return tuple(option for option in listed if isinstance(option, str))


def nullable(form: Form, path: KeyPath) -> bool:
    """Whether null is allowed at `path`."""
    return any(branch.get("type") == "null" for branch in _at(form, path))


def _at(form: Form, path: KeyPath) -> list[Schema]:
    root = json_schema(form)
    here = list(_branches(root, root))
    for part in path:
        steps = (_step(branch, part) for branch in here)
        here = [branch for step in steps if step is not None for branch in _branches(root, step)]
    return here


def _step(branch: Schema, part: str | int) -> Schema | None:
    inside = branch.get("items") if isinstance(part, int) else branch.get("properties", {}).get(part)
    if inside is None and isinstance(part, str):
        inside = branch.get("additionalProperties")
    return inside if isinstance(inside, dict) else None


def _branches(root: Schema, node: Schema) -> Iterator[Schema]:
    """Yield the node and its alternatives, with references resolved."""
    if "$ref" in node:
        yield from _branches(root, root["$defs"][node["$ref"].removeprefix("#/$defs/")])
    for option in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _branches(root, option)
    if not node.keys() & {"$ref", "anyOf", "oneOf"}:
        yield node

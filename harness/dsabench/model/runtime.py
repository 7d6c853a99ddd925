"""What runs: kind, model and settings of the runtime, and what its rules say."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from pydantic import Field, JsonValue

from dsabench.model.knobs import of_role
from dsabench.model.topology import SINGLE, Topology
from dsabench.model.value import FrozenMap, KnobValue, Value, canonical_json, digest

RuntimeKind = Literal["reference", "sglang", "external"]


class RuntimeSpec(Value):
    """Everything that decides the behaviour of a server. The place of its interpreter is not part of it."""

    kind: RuntimeKind
    model: str
    """A size of the reference model, or a model's path or name for other runtimes."""
    version: str | None = None
    """The requested version; None takes the installed one, which the environment records."""
    knobs: FrozenMap[KnobValue] = Field(default_factory=dict)
    """Canonical knob name → value; see `knobs.KNOBS`."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Environment variables that change behaviour. They are recorded, so they must not be secret."""
    base_url: str | None = None
    """Only for `external`: URL of the running server."""
    hardware: str | None = None
    """Accelerator of the spec (`h200`, …). It decides defaults and rules; None if it does not matter."""
    topology: Topology | None = None
    """The processes of a deployment; None is one server on one machine."""

    @cached_property
    def id(self) -> str:
        """sha256 of the canonical JSON. Equal specs can share a boot."""
        return digest(canonical_json(self))

    def with_roles_apart(self) -> RuntimeSpec:
        """The same with the knobs of one role (`decode.hisparse`) in that role of the topology, over what it has there."""
        if self.topology is None or not any(of_role(name)[0] for name in self.knobs):
            return self
        named = [(*of_role(name), value) for name, value in self.knobs.items()]
        roles = tuple(
            role.model_copy(
                update={"knobs": {**role.knobs, **{knob: value for owner, knob, value in named if owner == role.role}}}
            )
            for role in self.topology.roles
        )
        common = {knob: value for owner, knob, value in named if owner is None}
        topology = self.topology.model_copy(update={"roles": roles})
        return self.model_copy(update={"knobs": common, "topology": topology})

    @property
    def of_servers(self) -> tuple[dict[str, KnobValue], ...]:
        """The knobs that the servers of each role have, in the topology's order; those of the one server where there are no roles."""
        apart = self.with_roles_apart()
        return tuple({**apart.knobs, **role.knobs} for role in (apart.topology or SINGLE).roles)

    def changes(self, default: RuntimeSpec, left_out: Container[str] = ()) -> str:
        """Knobs that differ from the default, as `knob=value knob=value`; `default` if none does."""
        knobs = ((name, value) for name, value in self.knobs.items() if name not in left_out)
        return " ".join(f"{name}={value}" for name, value in knobs if default.knobs.get(name) != value) or "default"


RANDOM_WEIGHTS = "random weights"
"""Speeds are valid for these shapes. Outputs and accuracy mean nothing."""
LANES = " lanes"
"""How the label of a server on a share of the machine ends: `one of 4 lanes`."""
SIMULATED = "simulated"
"""Something that depends on real weights was fixed (accept length) or came from random weights (HiSparse's hit rate).
"""


def labels_of(spec: RuntimeSpec) -> tuple[str, ...]:
    """Labels of the records of a spec."""
    settings = spec.of_servers
    random = any(knobs.get("load_format") == "dummy" for knobs in settings)
    speculates = any(knobs.get("speculative_algorithm", "off") != "off" for knobs in settings)
    pinned = any("simulated_accept_length" in knobs for knobs in settings) and speculates
    hisparse = any(knobs.get("hisparse") is True for knobs in settings)
    simulated = pinned or (random and (speculates or hisparse))
    return (RANDOM_WEIGHTS,) * random + (SIMULATED,) * simulated


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """Why a setting does not run, or computes wrong answers."""

    rule: str
    """Its id in docs/sglang-rules.md; file and line where the runtime's own argument code refuses it."""
    line: str
    """One line: the id, the settings, the runtime's own message, the nearest legal setting."""
    by: Literal["runtime", "rules"] = "rules"


@dataclass(frozen=True, slots=True)
class SettingNote:
    """A note on a setting that runs: with other values, or at a price."""

    rule: str
    """Its id in docs/sglang-rules.md; the knob where the runtime's own argument code says what it becomes."""
    line: str
    """One line that starts with the id."""
    replaced: bool
    """Whether the setting runs with other values than requested."""


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """What a rank's GPU memory will be taken for."""

    gpu_gib: float
    """Free before the weights."""
    weights_gib: float
    kv_pool_gib: float
    kv_tokens: int
    """In the pool."""
    beside_gib: float
    """CUDA graphs and tables."""
    step_tokens: int
    """New tokens of a full prefill step."""
    step_gib: float
    """What lives at once in it."""
    largest: str
    """Its largest part, in words."""
    left_gib: float
    """Less than 0: it runs out of memory under the first load that fills a step."""
    spare_gib: float
    """Where less than this is left, it may."""
    fitting_chunk: int | None = None
    """The largest half, quarter, … of `chunked_prefill_size` with which it fits; None if it does with none."""

    @property
    def verdict(self) -> Literal["fits", "may run out", "runs out"]:
        """Of a full prefill step."""
        if self.left_gib < 0:
            return "runs out"
        return "may run out" if self.left_gib < self.spare_gib else "fits"


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """What is known about a setting before it boots."""

    violations: tuple[RuleViolation, ...] = ()
    notes: tuple[SettingNote, ...] = ()
    basis: str = ""
    """What was asked: the rules for a version; empty for a runtime without rules."""
    resolved: Mapping[str, JsonValue] = field(default_factory=dict)
    """Every knob as the runtime resolves it, those that were not set included; of a role other than `server` as
    `ROLE.KNOB`. Empty if it was not asked.
    """
    memory: MemoryForecast | None = None
    """None where it cannot be told."""

    @property
    def refusal(self) -> RuleViolation | None:
        """The first violation, with the ids of the others in its line; None if nothing forbids the setting."""
        if not self.violations:
            return None
        first, *others = self.violations
        more = f" (and {len(others)} more: {', '.join(one.rule for one in others)})" if others else ""
        return replace(first, line=first.line + more)


Refuse = Callable[[RuntimeSpec], RuleViolation | None]
"""Checks a setting before it boots; None if nothing forbids it."""


Annotate = Callable[[RuntimeSpec], tuple[SettingNote, ...]]
"""The notes on a setting; empty if there are none."""


def refuse_nothing(_spec: RuntimeSpec) -> RuleViolation | None:
    """For runtimes without rules."""
    return None


def annotate_nothing(_spec: RuntimeSpec) -> tuple[SettingNote, ...]:
    """For runtimes without rules."""
    return ()


ForecastMemory = Callable[[RuntimeSpec], MemoryForecast | None]
"""What a setting takes of a rank's memory; None where it cannot be told."""


def no_forecast(_spec: RuntimeSpec) -> MemoryForecast | None:
    """For runtimes without a forecast."""
    return None

"""What runs: the runtime's kind, model and settings, and what its rules say of them."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from dsabench.model.topology import SINGLE, Topology
from dsabench.model.value import FrozenMap, KnobValue, Value, canonical_json, digest

RuntimeKind = Literal["reference", "sglang", "external"]


class RuntimeSpec(Value):
    """All that decides how a server behaves, and nothing about where its interpreter lies."""

    kind: RuntimeKind
    model: str
    """A size of the reference model, or a model path or name for other runtimes."""
    version: str | None = None
    """The version asked for; None takes what is installed (which the environment records)."""
    knobs: FrozenMap[KnobValue] = Field(default_factory=dict)
    """Canonical knob name → value; see `knobs.KNOBS`."""
    env: FrozenMap[str] = Field(default_factory=dict)
    """Environment variables that change behaviour. Recorded, so never a secret."""
    base_url: str | None = None
    """Only for `external`: the server to attach to."""
    hardware: str | None = None
    """Accelerator the spec is meant for (`h200`, …), which decides defaults and rules; None where it does not matter."""
    topology: Topology | None = None
    """The processes of a deployment; None is one server on one machine."""

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON: equal specs can share a boot."""
        return digest(canonical_json(self))

    def changes(self, default: RuntimeSpec, left_out: Container[str] = ()) -> str:
        """Knobs that differ from the default's, as `knob=value knob=value`; `default` where none does."""
        knobs = ((name, value) for name, value in self.knobs.items() if name not in left_out)
        return " ".join(f"{name}={value}" for name, value in knobs if default.knobs.get(name) != value) or "default"


RANDOM_WEIGHTS = "random weights"
"""Speeds are those of the shapes; nothing that hangs on the values (outputs, accuracy) means anything."""
SIMULATED = "simulated"
"""Something that hangs on the values was pinned (accept length) or came from random ones (HiSparse's hits)."""


def labels_of(spec: RuntimeSpec) -> tuple[str, ...]:
    """The labels of a spec's records."""
    roles = (spec.topology or SINGLE).roles
    settings = [{**spec.knobs, **role.knobs} for role in roles]
    random = any(knobs.get("load_format") == "dummy" for knobs in settings)
    speculates = any(knobs.get("speculative_algorithm", "off") != "off" for knobs in settings)
    pinned = any("simulated_accept_length" in knobs for knobs in settings) and speculates
    hisparse = any(knobs.get("hisparse") is True for knobs in settings)
    simulated = pinned or (random and (speculates or hisparse))
    return (RANDOM_WEIGHTS,) * random + (SIMULATED,) * simulated


@dataclass(frozen=True, slots=True)
class RuleRefusal:
    """A rule that says the runtime would not run this setting, or would compute garbage."""

    rule: str
    """Its id, as in docs/sglang-rules.md."""
    line: str
    """One line that begins with the id: the settings, the runtime's own words, the nearest setting that works."""


@dataclass(frozen=True, slots=True)
class RuleNote:
    """A rule's word on a setting that boots: it runs as something else, or as asked at a price worth knowing."""

    rule: str
    """Its id, as in docs/sglang-rules.md."""
    line: str
    """One line that begins with the id."""
    overrules: bool
    """Whether it runs as something else than asked."""


Refuse = Callable[[RuntimeSpec], RuleRefusal | None]
"""Asked of every setting before it is booted; None where nothing forbids it."""


Annotate = Callable[[RuntimeSpec], tuple[RuleNote, ...]]
"""All that the rules say of a setting beside a refusal; empty where they have nothing to say."""


def refuse_nothing(_spec: RuntimeSpec) -> RuleRefusal | None:
    """For runtimes without rules."""
    return None


def annotate_nothing(_spec: RuntimeSpec) -> tuple[RuleNote, ...]:
    """For runtimes without rules."""
    return ()

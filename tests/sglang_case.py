"""What a case of a rule is, and settings that cases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleName, RouterSpec, Topology
from dsabench.model.value import KnobValue
from dsabench.sglang.rules.table import RULES, Rule
from dsabench.sglang.versions import READ, Version

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

Knobs = Mapping[str, KnobValue | None]


@dataclass(frozen=True)
class Case:
    """A spec that breaks `rule`. `legal` are the knobs that mend it; None takes the rule's own change."""

    rule: str
    knobs: dict[str, KnobValue] = field(default_factory=dict)
    legal: dict[str, KnobValue | None] | None = None
    model: str = "v3.2"
    hardware: str = "h200"
    role: RoleName = "server"
    nodes: int = 1
    env: dict[str, str] = field(default_factory=dict)
    first: Version | None = None
    last: Version | None = None
    legal_model: str | None = None
    legal_hardware: str | None = None
    peer: dict[str, KnobValue] = field(default_factory=dict)
    """Settings of the other half of disaggregation."""

    def spec(self, knobs: Mapping[str, KnobValue], *, legal: bool = False) -> RuntimeSpec:
        """The spec with these knobs on the case's role."""
        return RuntimeSpec(
            kind="sglang",
            model=self.legal_model if legal and self.legal_model else self.model,
            env={} if legal else self.env,
            topology=topology(self.role, self.nodes, knobs, self.peer),
        )

    @property
    def broken(self) -> RuntimeSpec:
        """The spec that breaks the rule."""
        return self.spec(self.knobs)

    @property
    def device(self) -> Accelerator:
        """What it runs on."""
        return HARDWARE[self.hardware]

    @property
    def legal_device(self) -> Accelerator:
        """What the neighbour runs on."""
        return HARDWARE[self.legal_hardware or self.hardware]

    def versions(self) -> list[Version]:
        """The versions that were read and in which the rule and this case hold."""
        rule = BY_ID[self.rule]
        return [
            version
            for version in READ
            if rule.holds_in(version)
            and (self.first is None or version >= self.first)
            and (self.last is None or version <= self.last)
        ]


def topology(
    role: RoleName, nodes: int, knobs: Mapping[str, KnobValue], peer: Mapping[str, KnobValue] = MappingProxyType({})
) -> Topology:
    """A deployment in which the role has these knobs; disaggregated roles get their other half, bare but for `peer`."""
    roles = [Role(role=role, nodes=nodes, knobs=knobs)]
    if role != "server":
        roles.append(Role(role="decode" if role == "prefill" else "prefill", knobs={"tp_size": 8, **peer}))
    return Topology(roles=tuple(roles), router=RouterSpec() if role != "server" else None)


def changed(knobs: Mapping[str, KnobValue], change: Knobs) -> dict[str, KnobValue]:
    """Knobs after a change; None takes one out."""
    return {name: value for name, value in {**knobs, **change}.items() if value is not None}


def v(patch: int) -> Version:
    return Version(0, 5, patch)


TP8: dict[str, KnobValue] = {"tp_size": 8}
DP8: dict[str, KnobValue] = {"tp_size": 8, "dp_size": 8, "dp_attention": True}
CP8: dict[str, KnobValue] = {"tp_size": 8, "prefill_cp": True, "cp_mode": "interleave"}
ZIGZAG: dict[str, KnobValue] = {**CP8, "cp_mode": "zigzag"}
MTP: dict[str, KnobValue] = {
    **TP8,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "max_running_requests": 32,
}
HISPARSE: dict[str, KnobValue] = {**TP8, "hisparse": True, "prefix_cache": False}
FP8: dict[str, KnobValue] = {"kv_cache_dtype": "fp8_e4m3"}
BF16: dict[str, KnobValue] = {"kv_cache_dtype": "bfloat16"}
FIVE_LAYERS: dict[str, KnobValue] = {"model_overrides": '{"num_hidden_layers": 5}'}
SINK = {"model_overrides": '{"learnable_sink": true}'}


def both(kernel: str) -> dict[str, KnobValue]:
    """The kernel for prefill and decode."""
    return {"prefill_backend": kernel, "decode_backend": kernel}

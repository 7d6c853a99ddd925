"""Random settings out of the catalogue of knobs, and the way from each to one that no rule refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from command_lines import COMPANIONS, values_of

from dsabench.model.knobs import KNOBS, Knob
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import RoleName
from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import settled_knobs
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.hardware import Accelerator
from dsabench.sglang.models import MODELS
from dsabench.sglang.render import render
from dsabench.sglang.rules import Finding, check
from dsabench.sglang.spellings import FLAGS, FOREIGN
from sglang_rule_cases import BY_ID, changed, topology

RARELY = 0.04
OFTEN = {
    "tp_size": 0.9,
    "kv_cache_dtype": 0.3,
    "prefill_backend": 0.2,
    "decode_backend": 0.2,
    "dp_attention": 0.25,
    "moe_a2a_backend": 0.12,
    "moe_runner_backend": 0.12,
    "speculative_algorithm": 0.1,
    "prefix_cache": 0.1,
    "ep_size": 0.1,
    "attn_cp_size": 0.08,
    "pp_size": 0.08,
    "chunked_prefill_size": 0.1,
    "hisparse": 0.08,
}
"""How often a knob is in a setting, where it is not rarely."""
ALSO_IN = {"transfer_backend": 0.3, "decode_prefix_cache": 0.2, "cache_layer_split": 0.15, "kv_cache_sharding": 0.15}
"""How often, in a half of disaggregation."""

NOT_DRAWN = (*FOREIGN, "ib_devices")
"""Settings that no version takes, or holds against the machine that it is on."""

_PATTERN = str(MODELS["glm-5"].index_topk_pattern)
VALUES: dict[str, tuple[KnobValue, ...]] = {
    "tp_size": (8, 8, 8, 8, 4, 16, 2, 6),
    **dict.fromkeys(("dp_size", "ep_size", "attn_cp_size", "moe_dp_size", "dcp_size"), (1, 2, 4, 8, 8, 16, 3)),
    "pp_size": (1, 2, 2, 4),
    "pp_layer_partition": ("30,31", "39,39", "61", "30,30", "a,b"),
    "moe_dense_tp_size": (1, 2, 8),
    "page_size": (1, 16, 64, 128),
    "mha_threshold_tokens": (0, 2048, 8192),
    "triton_union": (0, 2, 4),
    "index_topk_pattern": (_PATTERN, _PATTERN[:61], "F" * 61, "S"),
    "speculative_num_steps": (1, 2, 3, 5, 7),
    "speculative_eagle_topk": (1, 1, 1, 4),
    "speculative_num_draft_tokens": (2, 4, 6, 8),
    "speculative_draft_model": ("v3.2",),
    "speculative_adaptive_config": ("adaptive.json", '{"1": {"candidate_steps": [3]}}'),
    "simulated_accept_length": (2.0,),
    "chunked_prefill_size": (-1, 512, 1000, 1024, 4096, 8192, 16384),
    "max_prefill_tokens": (1024, 16384),
    "max_running_requests": (1, 8, 64, 512, 8192),
    "schedule_conservativeness": (0.0, 0.3, 1.0),
    "mem_fraction_static": (0.5, 0.8, 0.95),
    "max_total_tokens": (64, 100000),
    "context_length": (4096, 163840, 180000, 300000),
    "cuda_graph_max_bs": (1, 8, 64, 512),
    "hisparse_top_k": (512, 2048, 4096),
    "hisparse_device_buffer_size": (1024, 4096, 6144),
    "hisparse_host_to_device_ratio": (1, 2, 10),
    "hisparse_swap_in_block_size": (64, 960, 2048),
    "model_overrides": (
        *('{"num_hidden_layers": 5}', '{"num_attention_heads": 64}', '{"learnable_sink": true}'),
        *('{"kv_lora_rank": 448}', '{"index_topk_freq": 4}', '{"index_head_dim": 64}'),
    ),
    "served_model_name": ("dsa", "deepseek:v3"),
    "tokenizer_workers": (1, 4),
    "stream_interval": (1, 10),
    "pp_async_batch_depth": (0, 1, 4),
}
"""What is tried of knobs without choices; of others, what the version's flag takes, or the one value that fits."""

ENVIRONMENT = {
    "SGLANG_ENABLE_SPEC_V2": ("0", "1"),
    "SGLANG_ENABLE_PP_SPEC": ("1",),
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": ("1",),
    "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK": ("1024", "16384"),
    "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK": ("16384",),
}
"""Variables that rules ask for."""


@dataclass(frozen=True)
class Draw:
    """One role of a deployment."""

    model: str
    role: RoleName
    nodes: int
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> RuntimeSpec:
        """As a spec; the other half of disaggregation has the same KV cache."""
        shared = ("kv_cache_dtype", "prefill_backend", "decode_backend")
        peer = {name: self.knobs[name] for name in shared if name in self.knobs}
        place = topology(self.role, self.nodes, self.knobs, peer)
        return RuntimeSpec(kind="sglang", model=self.model, env=dict(self.env), topology=place)

    def __str__(self) -> str:
        knobs = " ".join(f"{name}={value}" for name, value in {**self.knobs, **self.env}.items())
        nodes = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.model} {self.role}{nodes}: {knobs or 'nothing set'}"


def draws(random: Random, accepted: Accepted) -> Iterator[Draw]:
    """One setting after the other, each of which this version's command line can say."""
    while True:
        role: RoleName = random.choices(("server", "prefill", "decode"), (6, 2, 2))[0]
        often = OFTEN | (ALSO_IN if role != "server" else {})
        drawn = {
            knob.name: random.choice(tried(knob, accepted))
            for knob in KNOBS.values()
            if knob.name not in NOT_DRAWN and random.random() < often.get(knob.name, RARELY)
        }
        needed = {other: value for name in drawn for other, value in COMPANIONS.get(name, {}).items()}
        env = {name: random.choice(texts) for name, texts in ENVIRONMENT.items() if random.random() < RARELY}
        setting = sayable(
            Draw(
                random.choices(list(MODELS), [4 if name in {"v3.2", "glm-5"} else 0.4 for name in MODELS])[0],
                role,
                random.choices((1, 2, 4), (8, 2, 1))[0],
                {**needed, **drawn},
                {name: text for name, text in env.items() if name in accepted.variables},
            ),
            accepted,
        )
        if setting is not None:
            yield setting


def tried(knob: Knob, accepted: Accepted) -> tuple[KnobValue, ...]:
    """Values of a knob that are worth putting to a version."""
    flag = next((name for spelling in FLAGS.get(knob.name, ()) for name in spelling.flags), "")
    choices = accepted.flags[flag].choices if flag in accepted.flags and not knob.choices and knob.type is str else ()
    return VALUES.get(knob.name) or choices or values_of(knob)


def sayable(setting: Draw, accepted: Accepted) -> Draw | None:
    """The setting without the knobs that this version cannot say; None where knobs are not what is in the way."""
    knobs = settled_knobs(setting.knobs)
    while remarks := [each for each in render(knobs, setting.env, accepted).remarks if each.severity != "advisory"]:
        wrong = {remark.knob for remark in remarks} & knobs.keys()
        if not wrong:
            return None
        knobs = {name: value for name, value in knobs.items() if name not in wrong}
    return replace(setting, knobs=knobs)


def refusals(setting: Draw, accepted: Accepted, device: Accelerator) -> list[Finding]:
    """Why the rules refuse it."""
    found = check(setting.spec, accepted.version, device)
    return [each for each in found if each.severity == "error" and each.role == setting.role]


def mended(setting: Draw, accepted: Accepted, device: Accelerator, random: Random) -> Iterator[Draw]:
    """The setting after each change that a rule advises, until none refuses it or none has another change."""
    walk = [setting]
    while True:
        found = refusals(walk[-1], accepted, device)
        steps = (_after(walk[-1], each, accepted, random) for each in found)
        after = next((step for step in steps if step is not None and step not in walk), None)
        if after is None:
            return
        walk.append(after)
        yield after


def _after(setting: Draw, finding: Finding, accepted: Accepted, random: Random) -> Draw | None:
    """With the rule's change, or without one of the knobs that it is about; None where neither is a way."""
    knobs = changed(setting.knobs, finding.change)
    if knobs == setting.knobs:
        named = [name for name in BY_ID[finding.rule].knobs if name in knobs]
        if not named:
            return None
        knobs.pop(random.choice(named))
    after = sayable(replace(setting, knobs=knobs), accepted)
    return after if after != setting else None


def smaller(setting: Draw, accepted: Accepted) -> Iterator[Draw]:
    """Settings with one thing less."""
    plain = (replace(setting, model="v3.2"), replace(setting, role="server"), replace(setting, nodes=1))
    without = [
        replace(setting, knobs={other: value for other, value in setting.knobs.items() if other != name})
        for name in setting.knobs
    ]
    bare = [
        replace(setting, env={other: text for other, text in setting.env.items() if other != name})
        for name in setting.env
    ]
    for less in (*bare, *without, *plain):
        said = sayable(less, accepted)
        if said is not None and said != setting:
            yield said

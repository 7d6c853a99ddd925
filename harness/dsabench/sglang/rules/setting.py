"""One role of a deployment as the runtime will see it once its own defaults and forced values are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsabench.model.hardware import Accelerator
from dsabench.model.topology import RoleName
from dsabench.model.value import KnobValue
from dsabench.sglang.models import Widths
from dsabench.sglang.versions import Version

Change = Mapping[str, KnobValue | None]
"""Knobs to set; None takes the knob out."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The model's config as far as rules ask for it, overrides applied. None is not known (a local folder)."""

    name: str | None
    """Short name of the model."""
    architecture: str
    layers: int | None
    heads: int | None
    index_topk: int | None
    """None: the model has no sparse attention."""
    index_head_dim: int
    kv_lora_rank: int
    learnable_sink: bool
    index_topk_freq: int
    index_topk_pattern: str | None
    shares_with_offset: bool
    """Whether the first layers that share the indexer's result are given by an offset (GLM-5.2)."""
    weights: str | None
    """Number format of the checkpoint."""
    weights_gib: float | None
    """At least this much memory over all ranks."""
    widths: Widths | None

    @property
    def is_dsa(self) -> bool:
        """Whether the runtime takes its DSA branches."""
        return self.index_topk is not None

    @property
    def is_glm(self) -> bool:
        """Whether it takes its GLM branches."""
        return self.architecture == "GlmMoeDsaForCausalLM"

    @property
    def shares_index(self) -> bool:
        """Whether some layers reuse the indexer's result of another (IndexCache)."""
        return self.index_topk_freq > 1 or "S" in (self.index_topk_pattern or "")


@dataclass(frozen=True, slots=True)
class Parallel:
    """Sizes after the runtime forced what it forces. `tp` is the world size of one pipeline stage."""

    tp: int
    dp: int
    """`dp_size` as asked."""
    dp_attention: bool
    """Whether the attention is split by requests."""
    ep: int
    pp: int
    cp: bool
    """Whether prefill tokens are split over the ranks."""
    cp_mode: str | None
    attn_cp: int
    moe_dp: int
    dcp: int
    a2a: str
    runner: str
    quantization: str | None

    @property
    def attention_dp(self) -> int:
        """Groups of the attention."""
        return self.dp if self.dp_attention else 1

    @property
    def attn_tp(self) -> int:
        """Ranks that share the heads of one attention; at least 1."""
        return max(self.tp // (self.attention_dp * self.attn_cp), 1)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Attention kernels and the KV cache they read."""

    attention: str
    """`dsa`, or what was asked for instead."""
    kv: str | None
    """Dtype of the KV cache; None where it hangs on hardware that is not known."""
    prefill: str | None
    decode: str | None
    page: int | None
    """Tokens of a page; None where it hangs on what else is installed."""

    @property
    def pair(self) -> tuple[str | None, str | None]:
        """Prefill and decode kernel."""
        return self.prefill, self.decode


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding; `algorithm` is None when it is off."""

    algorithm: str | None
    steps: int | None
    topk: int | None
    draft_tokens: int | None
    adapts: bool
    """Whether the steps follow the accept length: asked for, and not switched off by the runtime."""


@dataclass(frozen=True, slots=True)
class HiSparse:
    """Hierarchical sparse attention with its defaults."""

    on: bool
    top_k: int
    buffer: int
    """KV slots per request on the GPU."""
    ratio: int
    block: int


@dataclass(frozen=True, slots=True)
class Setting:
    """One role of a spec, resolved for a version and an accelerator."""

    version: Version
    device: Accelerator | None
    role: RoleName
    knobs: Mapping[str, KnobValue]
    """As asked, the role's own on top."""
    model: Facts
    parallel: Parallel
    kernels: Kernels
    speculation: Speculation
    hisparse: HiSparse
    prefix_cache: bool
    mixed_chunk: bool
    peer: Kernels | None = None
    """The other half's of disaggregation; None where it is launched elsewhere."""

    def asked(self, *names: str) -> bool:
        """Whether one of these knobs is set."""
        return any(name in self.knobs for name in names)

    def on(self, name: str) -> bool:
        """Whether the knob is set to true."""
        return self.knobs.get(name) is True

    def number(self, name: str) -> int | None:
        """The knob as a whole number; None where it is not set."""
        value = self.knobs.get(name)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """The knob as text; None where it is not set."""
        value = self.knobs.get(name)
        return value if isinstance(value, str) else None

    @property
    def static_fraction(self) -> float:
        """At most this part of the memory goes to weights and KV pool; 1.0 where the runtime is left to choose."""
        share = self.knobs.get("mem_fraction_static", 1.0)
        return float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else 1.0

    @property
    def cuda(self) -> bool:
        """Whether it is known to run on NVIDIA."""
        return self.device is not None and self.device.platform == "cuda"

    @property
    def rocm(self) -> bool:
        """Whether it is known to run on AMD."""
        return self.device is not None and self.device.platform == "rocm"

    @property
    def sm(self) -> tuple[int, int] | None:
        """Compute capability; None off NVIDIA."""
        return self.device.capability if self.device is not None and self.cuda else None

    @property
    def sm_major(self) -> int | None:
        """9 is Hopper, 10 Blackwell; None off NVIDIA."""
        return self.sm[0] if self.sm is not None else None

    @property
    def uses_dsa(self) -> bool:
        """Whether the DSA kernels run: a DSA model on the runtime's DSA backend."""
        return self.model.is_dsa and self.kernels.attention == "dsa"

    @property
    def heads_per_rank(self) -> int | None:
        """Query heads that a rank's attention kernel sees."""
        return self.model.heads // self.parallel.attn_tp if self.model.heads is not None else None

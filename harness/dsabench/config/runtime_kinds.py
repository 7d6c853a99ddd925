"""What each kind of runtime accepts in a config, and what is assumed about it, from `runtime_kinds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

from dsabench.model.runtime import RANDOM_WEIGHTS, RuntimeKind, RuntimeSpec, labels_of
from dsabench.model.space import boot_key
from dsabench.model.tables import read_table
from dsabench.model.value import FrozenMap, Value

if TYPE_CHECKING:
    from dsabench.config.specs import RuntimeConfig


class RuntimeKindInfo(Value):
    """One kind of runtime."""

    is_driven: bool
    """Whether studies can measure it."""
    is_launched: bool
    """Whether `dsabench launch` can write its commands."""
    refused: FrozenMap[str]
    """Key below `runtime`, or `sweeps` → why it must keep its default."""
    picks_port: bool = False
    """Whether `dsabench launch` gives a server that stands alone a free port. Others have a port of their own."""
    needs_gpus: bool = False
    """Whether it runs on GPUs alone, and `doctor` looks at its installation."""
    needs_base_url: bool = False
    needs_tokenizer: bool = False
    """Whether text datasets need a tokenizer's folder. Other kinds report their own tokenizer."""
    models: tuple[str, ...] | None = None
    knobs: FrozenMap[tuple[str, ...]] | None = None
    """The knobs that it has, each with its choices if they are limited."""
    caveat: str | None = None
    """A note on every result of it: its speeds are not sglang's."""
    code: str = "the runtime's code"
    """What changed when its hash did."""
    has_random_weights: bool = False
    """Whether answers mean nothing where a server does not say how its weights were loaded."""
    compiles_on_first_use: bool = False
    """Whether new shapes compile kernels, so that a load must be rehearsed."""
    reload_free: tuple[str, ...] = ()
    """Knobs that a running server changes, so that settings which differ in them alone can share a boot."""
    tables: Literal["sglang", "reference"] = "sglang"
    """Whose tuned tables its servers read."""
    assumed_boot_s: float
    """From start to ready with real weights, once kernels are compiled."""
    assumed_dummy_boot_s: float | None = None
    """The same with `load_format: dummy`."""
    assumed_compile_s: float = 0.0
    """What the first boot on a machine takes longer."""
    assumed_trial_s: float
    passes: int = 1
    """Number of times that a load is sent for one trial, including rehearsals."""
    stream_tok_s: float | None = None
    """Assumed generated tokens per second and stream, before anything is measured."""
    prefill_tok_s: float | None = None
    """Assumed prompt tokens per second."""


@cache
def runtime_kinds() -> dict[RuntimeKind, RuntimeKindInfo]:
    """Read all kinds."""
    table = read_table("runtime_kinds.yaml", __package__)
    return {cast("RuntimeKind", kind): RuntimeKindInfo(**info) for kind, info in table.items()}


def has_random_weights(spec: RuntimeSpec, resolved: Mapping[str, object]) -> bool:
    """Whether a server's answers mean nothing: it says `load_format: dummy` of itself (`resolved`), or was asked for that.

    A reference runtime that says nothing of it is of a version that had no trained model.
    """
    told = resolved.get("load_format")
    if told is None and ("reference" in resolved or runtime_kinds()[spec.kind].has_random_weights):
        return True
    return told == "dummy" or RANDOM_WEIGHTS in labels_of(spec)


def reload_free_of(runtime: RuntimeConfig | RuntimeSpec) -> frozenset[str]:
    """The knobs that its running server changes; none of a deployment of several servers."""
    alone = runtime.topology is None
    return frozenset(runtime_kinds()[runtime.kind].reload_free if alone else ())


def boot_of(spec: RuntimeSpec) -> str:
    """Equal for settings that can share a boot, because they differ in values of reload-free knobs alone."""
    return spec.model_copy(update={"knobs": dict(boot_key(spec.knobs, reload_free_of(spec)))}).id


def why_gpus_untold(kind: RuntimeKind) -> str | None:
    """Why GPU-hours of a kind cannot be counted; None if they can."""
    return None if runtime_kinds()[kind].needs_gpus else f"kind {kind} says nothing of the GPUs that it takes"

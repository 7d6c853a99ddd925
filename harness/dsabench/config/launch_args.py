"""Arguments of the runtime from the command line: `--launch-arg hicache_ratio=2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import TypeAdapter, ValidationError

from dsabench.config.knob_types import KnobSettings
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.knobs import argument_name, argument_value
from dsabench.model.value import KnobValue

_SETTINGS: TypeAdapter[Mapping[str, KnobValue]] = TypeAdapter(KnobSettings)
_WORDS: Mapping[str, KnobValue] = {"": True, "true": True, "false": False}


def with_args(runtime: RuntimeConfig, pairs: Sequence[str]) -> RuntimeConfig:
    """The runtime with `NAME=VALUE` (or `NAME` for a switch) below `base.args`.

    Raises:
        InputError: a pair that cannot be read, or a kind of runtime without such arguments.

    """
    if not pairs:
        return runtime
    info = runtime_kinds()[runtime.kind]
    if info.knobs is not None or "base" in info.refused:
        raise InputError(f"--launch-arg is for kind sglang, and this is {runtime.kind}")
    return runtime.model_copy(update={"base": MappingProxyType({**runtime.base, **named_args(pairs)})})


def named_args(pairs: Sequence[str]) -> Mapping[str, KnobValue]:
    """The settings of such pairs: `args.NAME` → value.

    Raises:
        InputError: a name that is none, or of a secret.

    """
    try:
        return _SETTINGS.validate_python({"args": dict(map(_pair, pairs))})
    except ValidationError as error:
        raise InputError(f"--launch-arg: {error.errors()[0]['ctx']['error']}") from None


def _pair(text: str) -> tuple[str, KnobValue]:
    name, _, value = text.partition("=")
    return argument_name(name), _WORDS.get(value, argument_value(value))

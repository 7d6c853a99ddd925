"""Invented landscapes over the axes of a node of eight GPUs, to compare strategies on many of them.

Their numbers describe no machine. The logarithm of the objective is a sum of one effect per factor, of products of two such effects
for half of the pairs, and, where the landscape is rugged, of tables over three factors. About 30 % of the settings fail: regions
in one to three factors, away from the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from dsabench.model.space import completed, key_of
from dsabench.model.value import KnobValue
from dsabench.study.landscape import Landscape, LandscapeHeader, LandscapeSetting
from dsabench.study.proposers.legal_settings import LegalSettings

Floats = npt.NDArray[np.float64]

_AXES: dict[str, tuple[KnobValue, ...]] = {
    "dp_size": (1, 2, 4, 8),
    "dp_attention": (False, True),
    "ep_size": (1, 8),
    "kv_cache_dtype": ("bfloat16", "fp8_e4m3"),
    "prefill_backend": ("flashmla_sparse", "flashmla_kv"),
    "decode_backend": ("flashmla_sparse", "flashmla_kv"),
    "speculative_algorithm": ("off", "EAGLE"),
    "speculative_num_steps": (1, 2, 3),
    "speculative_num_draft_tokens": (2, 3, 4),
    "chunked_prefill_size": (2048, 4096, 8192, 16384, 32768, 65536),
}
_MEMORY: dict[str, tuple[KnobValue, ...]] = {"mem_fraction_static": (0.8, 0.84, 0.88, 0.92)}
_RUNNING: dict[str, tuple[KnobValue, ...]] = {"max_running_requests": (128, 256, 512)}
_EAGLE = {"speculative_algorithm": "EAGLE"}
_WHEN: dict[str, Any] = {
    "prefill_backend": {"kv_cache_dtype": "fp8_e4m3"},
    "decode_backend": {"kv_cache_dtype": "fp8_e4m3"},
    "speculative_num_steps": _EAGLE,
    "speculative_num_draft_tokens": _EAGLE,
}
_FORBID: list[dict[str, Any]] = [
    {"dp_size": size, "dp_attention": attention} for size, attention in ((1, True), (2, False), (4, False), (8, False))
] + [
    {"speculative_num_steps": steps, "speculative_num_draft_tokens": tokens}
    for steps in (1, 2, 3)
    for tokens in (2, 3, 4)
    if tokens != steps + 1
]
_TIED = ("dp_attention", "speculative_algorithm", "speculative_num_draft_tokens")
"""Axes that follow from another one, so they are no factors."""
_FAULTS = ("out_of_memory", "exited", "timeout")


@dataclass(frozen=True, slots=True)
class LandscapeKind:
    """A family of landscapes. Effects are standard deviations of the logarithm."""

    axes: dict[str, tuple[KnobValue, ...]]
    alone: float
    pairs: float
    triples: float = 0.0


KINDS: dict[str, LandscapeKind] = {
    "smooth": LandscapeKind(_AXES, 0.048, 0.015),
    "rugged": LandscapeKind(_AXES, 0.036, 0.033, 0.018),
    "wide": LandscapeKind(_AXES | _MEMORY, 0.045, 0.015),
    "widest": LandscapeKind(_AXES | _MEMORY | _RUNNING, 0.045, 0.015),
}
"""`smooth` and `rugged` have 960 settings, `wide` 3,840, `widest` 11,520."""


def generate(kind: str, seed: int, *, noise: float = 0.02, failing: float = 0.3) -> Landscape:
    """Draw a landscape of a kind. Boots take 60 to 300 s, trials 40 to 120 s."""
    family, rng = KINDS[kind], np.random.default_rng([seed, list(KINDS).index(kind)])
    base: dict[str, KnobValue] = {name: values[0] for name, values in family.axes.items()}
    header = LandscapeHeader(
        name=f"{kind}-{seed}",
        about="invented: describes no machine",
        noise=noise,
        base=base,
        axes=family.axes,
        when=_WHEN,
        forbid=tuple(_FORBID),
    )
    legal = LegalSettings(header.space, base)
    factors = _factors(legal)
    logarithm = _effects(family, factors, rng)
    default = legal.places[key_of(completed(header.space, base, {}))]
    fault = _faults(factors, default, failing, rng)
    boots = 60 + 240 / (1 + np.exp(-sum(_effect(one, 1.0, rng)[one.codes] for one in factors[:2])))
    trials = 40 + 80 * rng.random(len(logarithm))
    values = 1000.0 * np.exp(logarithm)
    settings = tuple(
        LandscapeSetting(
            setting=setting,
            value=None if fault[place] else round(float(values[place]), 3),
            fault=_FAULTS[fault[place] - 1] if fault[place] else None,
            boot_s=round(float(boots[place]), 1),
            trials_s=0.0 if fault[place] else round(float(trials[place]), 1),
        )
        for place, setting in enumerate(legal.listed or ())
    )
    return Landscape(header=header, settings=settings)


@dataclass(frozen=True, slots=True)
class _Factor:
    """An axis that others do not follow from; inactive is a level of its own."""

    codes: npt.NDArray[np.int64]
    levels: int
    ordered: bool


def _factors(legal: LegalSettings) -> list[_Factor]:
    found = []
    for column, axis in enumerate(legal.space.axes):
        if axis.name not in _TIED:
            levels, codes = np.unique(legal.codes[:, column], return_inverse=True)
            found.append(_Factor(codes, len(levels), len(axis.values) > 2))
    return found


def _effect(factor: _Factor, size: float, rng: np.random.Generator) -> Floats:
    """The effect of each level: of a number mostly a parabola, else anything."""
    levels = factor.levels
    if factor.ordered and rng.random() < 0.8:
        x = np.linspace(-1.0, 1.0, levels)
        found = -rng.uniform(0.5, 1.0) * (x - rng.uniform(-1.0, 1.0)) ** 2 + rng.normal(0.0, 0.3) * x
    else:
        found = rng.normal(0.0, 1.0, levels)
    found = found - found.mean()
    scaled: Floats = found / (found.std() or 1.0) * size * rng.uniform(0.4, 1.4)
    return scaled


def _effects(family: LandscapeKind, factors: list[_Factor], rng: np.random.Generator) -> Floats:
    total: Floats = np.zeros(len(factors[0].codes))
    for one in factors:
        total += _effect(one, family.alone, rng)[one.codes]
    for one, other in combinations(factors, 2):
        if rng.random() < 0.5:
            first, second = _effect(one, 1.0, rng)[one.codes], _effect(other, 1.0, rng)[other.codes]
            total += family.pairs * first * second
    for _ in range(6 if family.triples else 0):
        chosen = [factors[place] for place in rng.choice(len(factors), 3, replace=False)]
        table = rng.normal(0.0, family.triples, [one.levels for one in chosen])
        total += table[tuple(one.codes for one in chosen)]
    return total


def _faults(factors: list[_Factor], default: int, failing: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """0 where a setting runs, else the number of its fault."""
    found = np.zeros(len(factors[0].codes), dtype=np.int64)
    while np.mean(found > 0) < failing - 0.03:
        chosen = rng.choice(len(factors), rng.choice([1, 2, 3], p=[0.1, 0.6, 0.3]), replace=False)
        region = np.ones(len(found), dtype=bool)
        for place in chosen:
            region &= _some_levels(factors[place], rng)
        if not region[default] and np.mean(region | (found > 0)) <= failing + 0.03:
            found[region & (found == 0)] = rng.integers(1, len(_FAULTS) + 1)
    return found


def _some_levels(factor: _Factor, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which settings have one of some levels: from one on or up to it, of an unordered factor that one."""
    level, above = int(rng.integers(factor.levels)), rng.random() < 0.5
    if not factor.ordered:
        return np.equal(factor.codes, level)
    return np.greater_equal(factor.codes, level) if above else np.less_equal(factor.codes, level)

"""What a release of the runtime says to the settings of a config, for `dsabench config check --runtime-version`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.config.load import load_expanded
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.runtime import RuleViolation, RuntimeSpec
from dsabench.model.value import KnobValue, value_text
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.protocol import Runtime
from dsabench.study.space_check import sample

_LOOKED_UP = 20
"""For so many settings with no legal one in their space, a legal one is looked for outside of it."""


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting that the release does not run."""

    setting: str
    """What differs from the default."""
    violation: RuleViolation
    nearest: Mapping[str, KnobValue | None] | None
    """Knobs to change, None to leave one out; None where no legal setting is near."""

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "setting": self.setting,
            "verdict": "refused",
            "by": self.violation.by,
            "message": self.violation.line,
            "nearest": None if self.nearest is None else dict(self.nearest),
        }


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """All settings of a config, or of a sample of its space."""

    settings: int
    basis: str
    """Who was asked."""
    is_default_refused: bool
    refused: tuple[RefusedSetting, ...]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {"settings": self.settings, "basis": self.basis, "refused": [one.as_json() for one in self.refused]}

    def lines(self) -> list[str]:
        """For a terminal: one line in all, one for each reason."""
        if not self.refused:
            return [f"{self.settings} settings run, by {self.basis}"]
        counts = Counter(one.violation.rule for one in self.refused)
        first = {one.violation.rule: one for one in reversed(self.refused)}
        reasons = [f"{times} refused: {_line(first[rule])}" for rule, times in counts.most_common()]
        return [f"{len(self.refused)} of {self.settings} settings are refused, by {self.basis}", *reasons]


def check_settings(file: str, version: str) -> CheckedConfig:
    """Ask the release about every setting.

    Raises:
        InputError: the file is wrong or of another kind, or the release is not known.

    """
    config = load_expanded(file)
    points = sample(config)[0] if isinstance(config, StudyConfig) else []
    default = config.spec({})
    specs = list({spec.id: spec for spec in (default, *map(config.spec, points))}.values())
    runtime = make_runtime(config.runtime if isinstance(config, StudyConfig) else config)
    if not runtime.releases:
        raise InputError(f"{file}: --runtime-version is for kind sglang")
    checks = runtime.check(specs, version)
    passed = [spec for spec, check in zip(specs, checks, strict=True) if check.refusal is None]
    refused = [(spec, check.refusal) for spec, check in zip(specs, checks, strict=True) if check.refusal is not None]
    found = tuple(
        RefusedSetting(
            spec.changes(default),
            refusal,
            _nearest(spec, passed) or (_outside(runtime, spec, version) if number < _LOOKED_UP else None),
        )
        for number, (spec, refusal) in enumerate(refused)
    )
    is_default_refused = any(spec.id == default.id for spec, _ in refused)
    return CheckedConfig(len(specs), checks[0].basis, is_default_refused, found)


def _nearest(spec: RuntimeSpec, passed: Sequence[RuntimeSpec]) -> Mapping[str, KnobValue | None] | None:
    """The changes to the setting of the space that runs and differs in the fewest knobs."""
    changes = [_changes(spec, other) for other in passed]
    return min(changes, key=len) if changes else None


def _changes(spec: RuntimeSpec, other: RuntimeSpec) -> dict[str, KnobValue | None]:
    names = [*spec.knobs, *(name for name in other.knobs if name not in spec.knobs)]
    return {name: other.knobs.get(name) for name in names if spec.knobs.get(name) != other.knobs.get(name)}


def _outside(runtime: Runtime, spec: RuntimeSpec, version: str) -> Mapping[str, KnobValue | None] | None:
    names = runtime.nearest(spec, version)
    return None if names is None else dict.fromkeys(names)


def _line(one: RefusedSetting) -> str:
    change = ", ".join(
        f"without {name}" if value is None else f"{name}: {value_text(value)}"
        for name, value in (one.nearest or {}).items()
    )
    return one.violation.line + (f"; the nearest that runs: {change}" if change else "")

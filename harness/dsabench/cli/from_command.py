"""A launch command as the YAML of a config, for `dsabench config from-command`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml
from pydantic import JsonValue

from dsabench.config.knob_types import nested
from dsabench.model.knobs import ARGS, KNOBS
from dsabench.model.runtime import RuntimeSpec, SettingCheck
from dsabench.model.value import value_text
from dsabench.runtimes.command import Launch
from dsabench.runtimes.kinds import runtime_of
from dsabench.sglang.accepts import flags_of_release
from dsabench.sglang.command_line import ReadCommand, read_command

_WIDTH = 118
_NOTHING: tuple[JsonValue, ...] = (None, False, "", [], {})


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """What a command says, and what the release says to it."""

    version: str
    command: ReadCommand
    spec: RuntimeSpec
    check: SettingCheck

    @property
    def is_refused(self) -> bool:
        """Whether the release does not run it."""
        return bool(self.check.violations)

    def yaml(self) -> str:
        """A file for `dsabench launch`, and the runtime of one for `dsabench sweep`."""
        comment = "".join(f"# {line}\n" for line in self._comment())
        return comment + yaml.safe_dump(self._document(), sort_keys=False, allow_unicode=True, width=_WIDTH)

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "version": self.version,
            "config": self._document(),
            "args": [name.removeprefix(ARGS) for name in self.spec.knobs if name.startswith(ARGS)],
            "remarks": list(self.command.remarks),
            "verdict": "refused" if self.is_refused else "runs",
            "violations": [{"by": one.by, "message": one.line} for one in self.check.violations],
            "notes": [note.line for note in self.check.notes],
            "resolved": dict(self.check.resolved),
        }

    def _document(self) -> dict[str, object]:
        spec, base = self.spec, nested(_in_order(self.spec.knobs))
        runtime: dict[str, object] = {"kind": "sglang", "model": spec.model}
        runtime |= {} if spec.hardware is None else {"hardware": spec.hardware}
        runtime |= {"base": base} if base else {}
        runtime |= {"env": dict(spec.env)} if spec.env else {}
        if spec.topology is not None:
            runtime["topology"] = spec.topology.model_dump(mode="json", exclude_defaults=True)
        name = re.sub(r"[^a-z0-9._-]+", "-", spec.model.rstrip("/").rpartition("/")[2].lower()).strip("-._")
        return {"name": name[:100] or "command", "runtime": runtime}

    def _comment(self) -> Iterator[str]:
        yield f"Read from a launch command, with the flags of sglang {self.version}."
        yield from (f"{line[0].upper()}{line[1:]}." for line in self.command.remarks)
        rest = {
            name: value
            for name, value in self.check.resolved.items()
            if name not in self.spec.knobs and name != "random_seed" and value not in (*_NOTHING, self.spec.model)
        }
        if rest:
            yield f"What sglang {self.version} takes for the rest:"
            # No line ends between a name and its value.
            listed = ", ".join(f"{name}:\N{NO-BREAK SPACE}{value_text(value)}" for name, value in rest.items())
            lines = textwrap.wrap(listed, _WIDTH - 4, break_on_hyphens=False)
            yield from (f"  {line}".replace("\N{NO-BREAK SPACE}", " ") for line in lines)


def config_from_command(text: str, version: str | None, hardware: str | None) -> CommandConfig:
    """Read a command with the flags of a release (the newest that is known), and ask the release about it.

    Raises:
        InputError: no launch command of sglang, an unknown release or hardware.

    """
    runtime = runtime_of("sglang", Launch())
    accepted = flags_of_release(version or runtime.releases[-1])
    command = read_command(text, accepted)
    spec = command.spec(hardware)
    return CommandConfig(accepted.release, command, spec, runtime.check((spec,), accepted.release)[0])


def _in_order(knobs: Mapping[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
    """In the order of `KNOBS`, arguments last and by name."""
    names = [*(name for name in KNOBS if name in knobs), *sorted(name for name in knobs if name.startswith(ARGS))]
    return {name: knobs[name] for name in names}

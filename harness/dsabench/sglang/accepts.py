"""What a version of the runtime takes: flags with their choices, and environment variables that its sources name.

Found by asking the installed version's own parser (`installed.py`), or read from `parsers.json`, which
tests/wheels/make_parsers.py writes from the published wheels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal

from dsabench.errors import InputError
from dsabench.sglang.resolve.releases import AddedRelease, added_release
from dsabench.sglang.versions import Version, parse_version

Takes = Literal["nothing", "value", "values"]
State = Literal["real", "alias", "no-op"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One option string. An alias still works and warns; a no-op is accepted and does nothing."""

    dest: str
    """Equal for all spellings of one argument."""
    takes: Takes
    choices: tuple[str, ...] = ()
    """Empty where any text is taken."""
    state: State = "real"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command line of one version."""

    version: Version
    flags: Mapping[str, Flag]
    variables: frozenset[str]
    """Names that begin with SGLANG_."""
    source: str
    """Where this was found, in words."""
    release: str
    """The version as the wheel says it, post releases included."""

    def expand(self, flag: str) -> str | None:
        """The full name of an abbreviation, as argparse completes it; None where it is none or ambiguous."""
        if flag in self.flags:
            return flag
        longer = [name for name in self.flags if name.startswith(flag)]
        return longer[0] if len(longer) == 1 or len({self.flags[name].dest for name in longer}) == 1 else None


def known_versions() -> tuple[Version, ...]:
    """The versions in the table, oldest first."""
    return tuple(parse_version(text) for text in _table()["wheels"])


def flags_of_release(version: str) -> Accepted:
    """The flags of a release: by its own parser where it was added (`dsabench runtime add`), else from the table.

    Raises:
        InputError: it was not added, and the table does not have it.

    """
    added = added_release(version)
    if added is None:
        return from_table(parse_version(version))
    return _from_release(added)


@lru_cache(maxsize=32)
def _from_release(release: AddedRelease) -> Accepted:
    return accepted_of(release.facts, release.version)


def accepted_of(facts: Mapping[str, Any], version: str) -> Accepted:
    """From what `tell_facts.py` tells of a parser."""
    return Accepted(
        version=parse_version(version),
        flags={name: flag_of(form) for name, form in facts["flags"].items()},
        variables=frozenset(facts["variables"]),
        source=f"the parser of sglang {version}",
        release=version,
    )


def from_table(version: Version) -> Accepted:
    """What that release takes.

    Raises:
        InputError: the table does not have it.

    """
    known = known_versions()
    if version not in known:
        near = max((other for other in known if other < version), default=known[0])
        raise InputError(
            f"sglang {version}: its flags are not in the table ({known[0]} to {known[-1]}); `dsabench runtime add sglang=={version}` "
            f"gets them, or take {near}"
        )
    return _from_table(version)


@cache
def _from_table(version: Version) -> Accepted:
    table = _table()
    flags = {
        name: flag_of(form) for name, forms in table["flags"].items() for form in forms if _within(version, form)
    }  # fmt: skip
    variables = frozenset(
        name
        for name, spans in table["variables"].items()
        if any(parse_version(first) <= version <= parse_version(last) for first, last in spans)
    )
    return Accepted(version, flags, variables, f"the table of sglang {version}", str(version))


def flag_of(form: Mapping[str, Any]) -> Flag:
    """A flag from its JSON form."""
    choices = tuple(form.get("choices") or ())
    return Flag(dest=form["dest"], takes=form["takes"], choices=choices, state=form.get("state") or "real")


def _within(version: Version, form: Mapping[str, Any]) -> bool:
    return parse_version(form["first"]) <= version <= parse_version(form["last"])


@cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("parsers.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table

"""The rules that SGLang's own argument code cannot say: a YAML table for each family beside its predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from dsabench.model.hardware import Accelerator, accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.tables import read_table
from dsabench.model.topology import SINGLE, RoleName, Topology
from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import LaunchPlan, PlanRemark, Severity, settle
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.resolve.releases import added_release
from dsabench.sglang.rules import hisparse, indexer, kernels, memory, models, roles
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.setting import Change, Setting
from dsabench.sglang.versions import READ, V9, Version, parse_version

Kind = Literal[
    "ValueError",
    "AssertionError",
    "RuntimeError",
    "NotImplementedError",
    "FileNotFoundError",
    "log",
    "silent",
    "document",
]
"""How the runtime says it. `log` is a line of its log, `silent` is told in our words, `document` is its manual's note."""

_ORDER = ("error", "overwritten", "advisory")
"""error: it does not run, or computes garbage. overwritten: it runs with something else than asked. advisory: it runs
as asked, outside what its authors tested, or at a price worth knowing."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the runtime says from a version on. Places in braces are attributes of the setting `s`."""

    since: Version
    kind: Kind
    text: str = ""
    """Empty for an assertion without a message."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One known combination that does not do what was asked, from `since` to `until` (None: still there in 0.5.23)."""

    id: str
    severity: Severity
    condition: str
    """In our words, one line."""
    words: tuple[Words, ...]
    """Oldest first."""
    fix: str
    source: str
    """Where the runtime checks or does it: `VERSION=path:line`, or the document that says so."""
    when: Callable[[Setting], bool]
    change: Callable[[Setting], Change] | None = None
    """The nearest legal setting as knobs; None where it is not a matter of knobs."""
    since: Version = V9
    until: Version | None = None
    knobs: tuple[str, ...] = ()
    """The knobs whose combination it is about; the message shows those that were set."""
    probe: str | None = None
    """What of its words stands in the sources as it is, where the longest piece does not; empty where nothing does."""

    def holds_in(self, version: Version) -> bool:
        """Whether the rule is in force in that version."""
        return self.since <= version and (self.until is None or version <= self.until)

    def words_in(self, version: Version) -> Words:
        """What that version says."""
        return next((words for words in reversed(self.words) if words.since <= version), self.words[0])


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that a role of a spec breaks."""

    rule: str
    """Id of the rule, as in docs/sglang-rules.md."""
    severity: Severity
    role: RoleName
    message: str
    """One line: the combination and the settings that make it."""
    kind: Kind
    """How the runtime would have said it."""
    says: str
    """The runtime's words, or what it would have done without a word; empty for an assertion without a message."""
    fix: str
    """The nearest setting that works, in words."""
    change: Mapping[str, KnobValue | None] = field(default_factory=dict)
    """The same as knobs; None takes the knob out. Empty where knobs alone do not help."""

    def __str__(self) -> str:
        who = {"document": "its documents", "log": "the runtime logs", "silent": "the runtime"}.get(self.kind)
        error = f"{self.kind}{': ' if self.says else ''}{self.says}"
        said = f"the runtime: {error}" if who is None else f"{who}: {self.says}"
        return f"{self.rule}: {self.message} ({said}); {self.fix}".replace("\n", " ")


def _family(module: ModuleType) -> tuple[str, tuple[Rule, ...]]:
    """The title of a family and its rules, with the predicates of the module of the same name."""
    table: Any = read_table(f"{module.__name__.rpartition('.')[2]}.yaml", __package__)
    return table["family"], tuple(_rule(row, module) for row in table["rules"])


def _rule(row: Mapping[str, Any], module: ModuleType) -> Rule:
    words = (Words(parse_version(one.get("since", str(V9))), one["kind"], one.get("text", "")) for one in row["words"])
    spans = {name: parse_version(row[name]) for name in ("since", "until") if name in row}
    callables = {"when": getattr(module, row["when"]), "change": _change(row.get("change"), module)}
    return Rule(**{**row, "words": tuple(words), "knobs": tuple(row.get("knobs", ())), **spans, **callables})


def _change(
    said: str | Mapping[str, KnobValue | None] | None, module: ModuleType
) -> Callable[[Setting], Change] | None:
    """By the name of a function, or knobs that do not depend on the setting."""
    if isinstance(said, Mapping):
        return lambda _: said
    change: Callable[[Setting], Change] | None = None if said is None else getattr(module, said)
    return change


FAMILIES: dict[str, tuple[Rule, ...]] = dict(map(_family, (models, memory, kernels, indexer, hisparse, roles)))

RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES.values() for rule in family)


def check(
    spec: RuntimeSpec,
    version: Version,
    hardware: Accelerator | None,
    topology: Topology | None = None,
    gone: frozenset[str] | None = None,
) -> tuple[Finding, ...]:
    """Everything known against this spec, errors first. Never raises.

    Rules about hardware stay silent where it is not known. A topology given here replaces the spec's own.

    Args:
        spec: what is asked.
        version: of SGLang.
        hardware: the GPUs.
        topology: instead of the spec's own.
        gone: ids of rules whose words a version that was not read does not have; None if its sources are not here.

    """
    roles_here = (topology or spec.topology or SINGLE).roles
    findings = [*_unread(version, roles_here[0].role, gone)]
    in_force = [rule for rule in RULES if rule.holds_in(version) and rule.id not in (gone or ())]
    for setting in _paired([resolve(spec, role, version, hardware) for role in roles_here]):
        findings += [_finding(rule, setting) for rule in in_force if rule.when(setting)]
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def _paired(settings: Sequence[Setting]) -> Iterator[Setting]:
    """Prefill and decode told of each other's kernels: the cache of one is read by the other."""
    halves = {setting.role: setting.kernels for setting in settings}
    other = {"prefill": halves.get("decode"), "decode": halves.get("prefill")}
    for setting in settings:
        yield replace(setting, peer=other.get(setting.role))


def _finding(rule: Rule, setting: Setting) -> Finding:
    words = rule.words_in(setting.version)
    values = ", ".join(f"{name}={setting.knobs[name]}" for name in rule.knobs if name in setting.knobs)
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        role=setting.role,
        message=f"{rule.condition} ({values})" if values else rule.condition,
        kind=words.kind,
        says=words.text.format(s=setting),
        fix=rule.fix,
        change=dict(rule.change(setting)) if rule.change else {},
    )


def _unread(version: Version, role: RoleName, gone: frozenset[str] | None) -> Iterator[Finding]:
    """A note for a version whose sources nobody read."""
    if version in READ:
        return
    nearest = max((read for read in READ if read < version), default=READ[0])
    message = f"sglang {version} was not read; the rules of {nearest} are taken for it"
    if gone is not None:
        lost = f" without {', '.join(sorted(gone))}" if gone else ""
        message += f", as far as its sources have their words{lost}"
    yield Finding("VR01", "advisory", role, message, "silent", "unknown", f"sglang {nearest}")


_SEARCHED = ("srt", "kernels", "jit_kernel")
_HOLE = re.compile(r"\{[^}]*\}|‹[^›]*›")
_JOINED = re.compile(r"[\"']\s*\n\s*[rf]*[\"']")
"""Between two halves of a text in the sources."""
_SHORTEST = 16
"""Of a piece of text that is looked for, in characters."""


@lru_cache(maxsize=4)
def rules_gone(tree: Path) -> frozenset[str]:
    """Ids of rules whose words an unpacked wheel does not have. Rules that quote nothing stay."""
    files = [file for part in _SEARCHED for file in (tree / "sglang" / part).rglob("*.py")]
    sources = "\n".join(_JOINED.sub("", file.read_text(encoding="utf-8", errors="ignore")) for file in files)
    return frozenset(rule.id for rule in RULES if (piece := _quoted(rule)) and piece not in sources)


def _quoted(rule: Rule) -> str | None:
    """The longest text between two values in what the newest version says; None where it says too little."""
    words = rule.words[-1]
    if rule.probe is not None:
        return rule.probe
    if words.kind in {"silent", "document"}:
        return None
    longest = max((piece.strip() for piece in _HOLE.split(words.text)), key=len, default="")
    return longest if len(longest) >= _SHORTEST else None


Objection = Finding | PlanRemark
"""Has `rule`, `severity`, and a line of text."""


def _gone(accepted: Accepted) -> frozenset[str] | None:
    """Rules that a version which nobody read does not have; None where it was read, or its sources are not here."""
    added = None if accepted.version in READ else added_release(accepted.release)
    return None if added is None else rules_gone(added.tree)


def judge(commands: LaunchPlan, spec: RuntimeSpec, accepted: Accepted) -> tuple[Objection, ...]:
    """Errors first; what two roles or both sources say is said once."""
    device = None if spec.hardware is None else accelerator(spec.hardware)
    asked = settle(spec)
    findings = check(asked, accepted.version, device, asked.topology, _gone(accepted))
    objections: list[Objection] = [*findings, *commands.remarks]
    once = {str(objection): objection for objection in objections}.values()
    return tuple(sorted(once, key=lambda objection: objection.severity != "error"))

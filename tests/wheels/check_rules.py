"""Holds the rules against every release that was added (`dsabench runtime add sglang==VERSION`). Needs no GPU.

    PYTHONPATH=harness:kernels:tests python tests/wheels/check_rules.py [VERSION …]

- A rule that quotes the runtime holds in a version exactly where that version's sources have the words.
- The nearest legal setting of each case is not refused by the version's own argument code.
- The kernels that `resolve` takes for a plain setting, on each accelerator and KV dtype, are those that the code resolves.

Prints what is not so; exits 1 if there is anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from dsabench.model.hardware import HARDWARE
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch
from dsabench.sglang.resolve.releases import AddedRelease, added_releases
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.table import RULES, check, rules_gone
from dsabench.sglang.runtime import SglangRuntime
from dsabench.sglang.versions import READ, Version, parse_version
from sglang_rule_cases import CASES, changed
from sglang_rule_golden import label_of

DTYPES = ("auto", "bfloat16", "fp8_e4m3")


def quotes(release: AddedRelease, version: Version) -> Iterator[str]:
    """Rules whose words stand where they should not, or the other way round."""
    gone = rules_gone(release.tree)
    for rule in RULES:
        if rule.id in gone and rule.holds_in(version) and rule.words_in(version) is rule.words[-1]:
            yield f"{rule.id} holds by the table, and its words are not in the sources"


def neighbours(release: AddedRelease, version: Version) -> Iterator[str]:
    """Cases whose nearest legal setting the argument code refuses."""
    asked: list[tuple[str, RuntimeSpec]] = []
    for case in (case for case in CASES if version in case.versions()):
        change: Mapping[str, KnobValue | None] | None = case.legal
        if change is None:
            findings = check(case.broken, version, case.device)
            change = next(found.change for found in findings if found.rule == case.rule)
        legal = case.spec(changed(case.knobs, change), legal=True)
        asked.append((label_of(case), legal.model_copy(update={"hardware": case.legal_device.name})))
    checks = SglangRuntime(Launch()).check([spec for _, spec in asked], release.version)
    for (label, _), checked in zip(asked, checks, strict=True):
        yield from (f"{label}: {one.line}" for one in checked.violations if one.by == "runtime")


def defaults(release: AddedRelease, version: Version) -> Iterator[str]:
    """Plain settings for which the rules take other kernels than the argument code."""
    specs = [
        RuntimeSpec(kind="sglang", model="v3.2", hardware=device, knobs={"tp_size": 8, "kv_cache_dtype": dtype})
        for device, one in HARDWARE.items()
        for dtype in DTYPES
        if one.platform != "npu"
    ]
    for spec, checked in zip(specs, SglangRuntime(Launch()).check(specs, release.version), strict=True):
        ours = resolve(spec, SINGLE.roles[0], version, HARDWARE[spec.hardware or ""]).kernels
        for name, kernel in (("prefill_backend", ours.prefill), ("decode_backend", ours.decode)):
            theirs = checked.resolved.get(name)
            if theirs is not None and kernel is not None and kernel != theirs:
                yield f"{spec.hardware}, {spec.knobs['kv_cache_dtype']}: {name} {theirs}, the rules take {kernel}"


def main(wanted: list[str]) -> int:
    wrong = 0
    for release in added_releases():
        version = parse_version(release.version)
        if version not in READ or (wanted and release.version not in wanted):
            continue
        found = [
            f"{release.version}: {line}" for part in (quotes, neighbours, defaults) for line in part(release, version)
        ]
        print("\n".join(found) or f"{release.version}: as the rules say")
        wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

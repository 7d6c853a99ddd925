"""Every rule that a spec can break is broken by a spec, in every version in which it holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dsabench.sglang.rules.table import RULES, Finding, check
from dsabench.sglang.versions import Version
from sglang_rule_cases import BY_ID, CASES, Case, changed


def cases_of(rule: str) -> Iterator[tuple[str, Case, Version]]:
    """Each case in each version in which it holds, with a text that names both for a failure."""
    for number, case in enumerate((case for case in CASES if case.rule == rule), start=1):
        for version in case.versions():
            yield f"{rule}, case {number}, sglang {version}", case, version


@pytest.mark.parametrize("rule", sorted({case.rule for case in CASES}))
def test_a_case_breaks_its_rule_and_the_nearest_setting_does_not(rule: str) -> None:
    """The nearest setting is the rule's own change, which leaves no other error behind, or the case's `legal`."""
    for where, case, version in cases_of(rule):
        before = check(case.broken, version, case.device)
        own = [found for found in before if found.rule == rule]
        assert [found.role for found in own] == [case.role], where
        assert own[0].severity == BY_ID[rule].severity, where
        assert "\n" not in str(own[0]), where
        assert "{" not in own[0].says.replace("{s", "{"), f"{where}: a placeholder is left in {own[0].says!r}"

        legal = own[0].change if case.legal is None else case.legal
        assert legal or case.legal is not None, f"{where}: a rule without a change needs a case with a legal neighbour"
        neighbour = check(case.spec(changed(case.knobs, legal), legal=True), version, case.legal_device)
        assert rule not in {found.rule for found in neighbour}, f"{where}: {legal} still breaks it"

        if BY_ID[rule].change is not None:
            after = check(case.spec(changed(case.knobs, own[0].change)), version, case.device)
            new = errors(after) - (errors(before) - {rule})
            assert not new, f"{where}: {own[0].change} breaks {sorted(new)}"


def errors(findings: tuple[Finding, ...]) -> set[str]:
    return {found.rule for found in findings if found.severity == "error"}


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.id for rule in RULES}


def test_every_version_of_a_rule_has_a_case() -> None:
    for rule in RULES:
        covered = {version for case in CASES if case.rule == rule.id for version in case.versions()}
        assert covered == set(Case(rule.id).versions()), rule.id

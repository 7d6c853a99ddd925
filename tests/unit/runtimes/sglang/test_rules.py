"""Every rule that a spec can break is broken by a spec, in every version in which it holds."""

from __future__ import annotations

import pytest

from dsabench.runtimes.sglang.rules import RULES, check
from dsabench.runtimes.sglang.versions import Version
from sglang_rule_cases import BY_ID, CASES, Case, changed

PAIRS = [
    pytest.param(case, version, id=f"{case.rule}-{index}-{version}")
    for index, case in enumerate(CASES)
    for version in case.versions()
]


CHANGED = [pair for pair in PAIRS if BY_ID[pair.values[0].rule].change is not None]


@pytest.mark.parametrize(("case", "version"), PAIRS)
def test_breaks(case: Case, version: Version):
    findings = [found for found in check(case.broken, version, case.device) if found.rule == case.rule]
    assert [found.role for found in findings] == [case.role]
    found = findings[0]
    assert found.severity == BY_ID[case.rule].severity
    assert "\n" not in str(found)
    assert "{" not in found.says.replace("{s", "{")


@pytest.mark.parametrize(("case", "version"), PAIRS)
def test_the_neighbour_is_legal(case: Case, version: Version):
    change = case.legal
    if change is None:
        change = next(found.change for found in check(case.broken, version, case.device) if found.rule == case.rule)
        assert change, "a rule without a change needs a case with a legal neighbour"
    spec = case.spec(changed(case.knobs, change), legal=True)
    mended = check(spec, version, case.legal_device)
    assert case.rule not in {found.rule for found in mended}


@pytest.mark.parametrize(("case", "version"), CHANGED)
def test_the_nearest_change_breaks_nothing_else(case: Case, version: Version):
    """A change offered as legal leaves no error that was not there before."""
    before = check(case.broken, version, case.device)
    own = next(found for found in before if found.rule == case.rule)
    after = check(case.spec(changed(case.knobs, own.change)), version, case.device)
    errors = {found.rule for found in after if found.severity == "error"}
    assert errors <= {found.rule for found in before if found.severity == "error"} - {case.rule}


def test_every_rule_has_a_case_or_says_why_not():
    cased = {case.rule for case in CASES}
    for rule in RULES:
        assert (rule.id in cased) != bool(rule.unreachable), rule.id
        assert (rule.when is None) == bool(rule.unreachable), rule.id


def test_every_version_of_a_rule_has_a_case():
    for rule in RULES:
        if rule.when is not None:
            covered = {version for case in CASES if case.rule == rule.id for version in case.versions()}
            assert covered == set(Case(rule.id).versions()), rule.id

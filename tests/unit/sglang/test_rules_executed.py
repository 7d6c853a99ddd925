"""The rules say what the runtime's own code said when it was run on their cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dsabench.model.hardware import HARDWARE
from dsabench.model.record import Measured
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import KnobValue
from dsabench.results.journal import read_journal
from dsabench.sglang.diagnose import diagnose
from dsabench.sglang.rules.table import RULES, check
from dsabench.sglang.versions import parse_version
from sglang_rule_cases import BY_ID, CASES, Case
from sglang_rule_golden import UNSEEN, executed, label_of, on_gpu, same_text, texts
from write_rules_page import PAGE, known_from, never_executed, page

VERSIONS = ("0.5.9", "0.5.10", "0.5.12", "0.5.16", "0.5.23")
ROWS = executed()["rules"]
ROOT = Path(__file__).parents[3]
LOGS = Path(__file__).parent / "logs"
KERNELS = ("kv_cache_dtype", "prefill_backend", "decode_backend")
SPOKEN = (
    *("ValueError", "AssertionError", "RuntimeError", "NotImplementedError", "TypeError", "FileNotFoundError"),
    "log",
)


def _cases() -> list[tuple[Case, str]]:
    read = [parse_version(text) for text in VERSIONS]
    return [(case, str(version)) for case in CASES for version in case.versions() if version in read]


def test_the_versions_are_those_that_must_be_shown() -> None:
    assert tuple(sorted(executed()["versions"], key=lambda text: int(text.split(".")[2]))) == VERSIONS


def test_every_rule_has_a_row_in_every_version_in_which_it_holds() -> None:
    held = {rule.id: {text for text in VERSIONS if rule.holds_in(parse_version(text))} for rule in RULES}
    assert {rule: set(rows) for rule, rows in ROWS.items()} == held


def test_no_rule_differs_from_the_runtime() -> None:
    outcomes = {row["outcome"] for rows in ROWS.values() for row in rows.values()}
    assert outcomes == {"agrees", "silent", "not executed"}


@pytest.mark.parametrize("rule", sorted({case.rule for case, _ in _cases()}))
def test_the_message_is_the_runtimes(rule: str) -> None:
    """What the rule now says of its cases is what the runtime said of them, values included."""
    for case, version in _cases():
        if case.rule != rule:
            continue
        where = f"{label_of(case)}, sglang {version}"
        found = next(f for f in check(case.broken, parse_version(version), case.device) if f.rule == rule)
        row = ROWS[rule][version]
        said = row.get("said", {}).get(label_of(case))
        if found.kind in SPOKEN and rule not in UNSEEN:
            assert row["outcome"] == "agrees", where
            assert said is not None or found.kind == "log", where
            text = said if found.kind == "log" else said.removeprefix(f"{found.kind}: ").removeprefix(f"{found.kind}:")
            assert found.kind == "log" or said.startswith(found.kind), where
            assert same_text(found.says, text), f"{where}: {found.says!r} is not {text!r}"
        elif found.kind == "argparse":
            assert said.startswith("argparse"), where
        else:
            unseen = found.kind == "document" or rule in UNSEEN
            assert said is None, where
            assert row["outcome"] == ("not executed" if unseen else "silent"), where


def test_what_was_never_executed_says_why() -> None:
    for rule in never_executed():
        whys = {row["why"] for row in ROWS[rule.id].values()}
        assert all(whys), rule.id
        assert rule.id in UNSEEN or known_from(rule).startswith(("documents", "sources")), rule.id


def _severities(knobs: Mapping[str, KnobValue], seen: Mapping[str, str]) -> dict[str, str]:
    """Rule → severity of all that is known against these knobs on that GPU."""
    spec = RuntimeSpec(kind="sglang", model="v3.2", knobs=knobs)
    found = check(spec, parse_version(seen["version"]), HARDWARE[seen["hardware"]])
    return {finding.rule: finding.severity for finding in found}


def _said_to_run(knobs: Mapping[str, KnobValue]) -> str:
    """The line of the log that names cache and kernels."""
    kernels = f"prefill={knobs['prefill_backend']}, decode={knobs['decode_backend']}."
    return f"DSA backends for {knobs['kv_cache_dtype']} KV Cache: {kernels}"


@pytest.mark.parametrize("rule", on_gpu())
def test_what_died_on_a_gpu_is_what_the_rule_refuses(rule: str) -> None:
    """Its log is at hand: the kernels that it names, where it died, its words, and the fault that is read from them."""
    seen = on_gpu()[rule]
    for boot in seen["died"]:
        knobs, log = boot["knobs"], (LOGS / f"{boot['log']}.txt").read_text()
        assert _severities(knobs, seen)[rule] == "error"
        assert _said_to_run(knobs) in log
        assert f"in {boot['in']}\n" in log
        cause = diagnose(log, booting=True)
        assert cause is not None
        assert (cause.kind, cause.message) == (boot["fault"], boot["said"])


@pytest.mark.parametrize("rule", on_gpu())
def test_what_served_on_that_gpu_is_legal(rule: str) -> None:
    seen = on_gpu()[rule]
    place = ROOT / seen["served"]["in"]
    for knobs in seen["served"]["knobs"]:
        assert rule not in _severities(knobs, seen)
        assert _served(place, knobs)


def _served(place: Path, knobs: Mapping[str, KnobValue]) -> bool:
    """Whether a journal or a log has a server that answered with these kernels."""
    if place.suffix == ".jsonl":
        records = read_journal(place).records
        logs = [record.resolved["dsabench"]["log"] for record in records if isinstance(record.outcome, Measured)]  # type: ignore[index, call-overload]
        return knobs in [{name: log.get(name) for name in KERNELS} for log in logs]
    text = place.read_text(encoding="utf-8")
    ready = text.partition("The server is fired up and ready to roll!")[2]
    pool = f"max_total_num_tokens={knobs['max_total_tokens']},"
    return _said_to_run(knobs) in text and pool in text and '"POST /generate HTTP/1.1" 200 OK' in ready


def test_neighbours_are_legal_for_the_runtime_too() -> None:
    """The nearest legal setting of every rule was put to the runtime: it did not meet the same refusal."""
    verdicts = {
        (label, version): word for label, row in executed()["neighbours"].items() for version, word in row.items()
    }
    assert len(verdicts) == len(_cases())
    assert "refused" not in verdicts.values()


def test_texts_stand_in_the_sources() -> None:
    """Quotes were found in the runtime's sources in every one of the versions; what is no quote is listed."""
    elsewhere = {"SL09", "SP16"}
    for rule in RULES:
        for version in VERSIONS:
            words = rule.words_in(parse_version(version))
            if (
                rule.holds_in(parse_version(version))
                and words.kind in SPOKEN
                and words.text
                and rule.id not in elsewhere
            ):
                assert version in texts().get(rule.id, {}), (rule.id, version)


def test_the_page_is_what_the_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run tests/write_rules_page.py"


def test_every_rule_stands_on_the_page_once() -> None:
    body = PAGE.read_text(encoding="utf-8").split("## Never executed")[0]
    for rule in BY_ID:
        assert body.count(f"| `{rule}` |") == 1, rule

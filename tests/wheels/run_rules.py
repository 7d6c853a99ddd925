"""Puts the specs of `sglang_rule_cases.py` before the runtime's own code and holds its words against the rules'.

    PYTHONPATH=harness:kernels:tests python tests/wheels/run_rules.py FOLDER [VERSION …] --python PATH [--old-python PATH]

FOLDER has one unpacked wheel per version (`FOLDER/0.5.16/sglang/…`). `--python` is an interpreter with torch (CPU),
torchvision, triton and transformers 5; `--old-python` one with transformers 4.57, which 0.5.9 needs. Needs no GPU.
Of the kernel package that a version pins (sgl-kernel, sglang-kernel), `FOLDER/kernels/VERSION/sgl_kernel/top_k.py` alone
is run, where it is there; it asserts what the top-k kernels take.

Writes tests/golden/sglang_rules/executed.json (see `sglang_rule_golden.py`): what each version said to each case, the
neighbours that it accepted, the defaults per hardware. A run with versions or `--only` replaces what it asked about.
Exits 1 where a rule and the runtime differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from questions import Question, questions
from runtime_process import started

from dsabench.sglang.versions import Version, parse_version
from sglang_rule_cases import BY_ID, CASES
from sglang_rule_golden import EXECUTED, UNSEEN, label_of, same_text, why_not_executed


def verdict(question: Question, answer: Mapping[str, Any]) -> tuple[str, str]:
    """`agrees`, `differs`, `silent` or `not executed`, and what the runtime said."""
    finding, error = question.finding(), answer.get("error")
    said = f"{error['kind']}: {error['text']}" if error else ""
    if finding.kind == "document":
        return "not executed", ""
    if finding.kind == "log":
        lines = [line for line in answer["log"] if same_text(finding.says, line)]
        return ("agrees", lines[0]) if lines else ("differs", said or " | ".join(answer["log"])[-600:])
    if finding.kind == "silent" or question.rule in UNSEEN:
        word = "not executed" if question.rule in UNSEEN else "silent"
        return ("differs", said) if error else (word, "")
    if error is None:
        return "differs", ""
    equal = error["kind"] == finding.kind and (finding.kind == "argparse" or same_text(finding.says, error["text"]))
    return ("agrees" if equal else "differs"), said


FIELDS = {
    "kv_cache_dtype": lambda s: s.kernels.kv,
    "dsa_prefill_backend": lambda s: s.kernels.prefill,
    "dsa_decode_backend": lambda s: s.kernels.decode,
    "nsa_prefill_backend": lambda s: s.kernels.prefill,
    "nsa_decode_backend": lambda s: s.kernels.decode,
    "page_size": lambda s: s.kernels.page if s.cuda else None,
    "ep_size": lambda s: s.parallel.ep,
    "attn_cp_size": lambda s: s.parallel.attn_cp,
    "moe_a2a_backend": lambda s: s.parallel.a2a,
    "quantization": lambda s: s.parallel.quantization,
    "disable_radix_cache": lambda s: not s.prefix_cache,
    "enable_mixed_chunk": lambda s: s.mixed_chunk,
    "speculative_num_steps": lambda s: s.speculation.steps if s.speculation.is_eagle_like else None,
    "speculative_eagle_topk": lambda s: s.speculation.topk if s.speculation.is_eagle_like else None,
    "speculative_num_draft_tokens": lambda s: s.speculation.draft_tokens if s.speculation.is_eagle_like else None,
}


def differences(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Fields that the runtime resolved to something else than `resolve` did."""
    setting = question.setting
    if not setting.model.is_dsa:
        return []
    found = answer.get("resolved", {})
    ours = {name: ask_for(setting) for name, ask_for in FIELDS.items() if name in found}
    return [
        f"{name}: the runtime {found[name]}, we {ours[name]}"
        for name in ours
        if ours[name] is not None and found[name] != ours[name]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--old-python")
    parser.add_argument("--only", action="append", default=[], help="a rule id; may be given several times")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    present = sorted(parse_version(path.name) for path in given.folder.iterdir() if (path / "sglang").is_dir())
    versions = [version for version in present if not given.versions or str(version) in given.versions]
    groups: dict[tuple[Version, str], list[Question]] = defaultdict(list)
    for question in questions(versions):
        if not given.only or question.rule in given.only:
            groups[question.version, question.device.name].append(question)
    asked_all = [question for group in groups.values() for question in group]
    record = _blank(versions)
    if given.only or given.versions:
        record = _without(json.loads(EXECUTED.read_text(encoding="utf-8")), record, asked_all)
    wrong = 0
    for (version, device), asked in groups.items():
        python = given.old_python if version < (0, 5, 10) and given.old_python else given.python
        with started(given.folder / str(version), python, asked[0].device) as runtime:
            for question in asked:
                wrong += note(record, question, runtime.ask(question), verbose=given.verbose)
        print(f"{version} on {device}: {len(asked)} specs", file=sys.stderr)
    EXECUTED.parent.mkdir(parents=True, exist_ok=True)
    EXECUTED.write_text(json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return 1 if wrong else 0


def _blank(versions: list[Version]) -> dict[str, Any]:
    """Every rule in every version, nothing executed yet."""
    rules = {
        rule.id: {
            str(version): {"outcome": "not executed", "why": why_not_executed(rule)}
            for version in versions
            if rule.holds_in(version)
        }
        for rule in BY_ID.values()
    }
    return {"versions": [str(version) for version in versions], "rules": rules, "neighbours": {}, "defaults": {}}


def _without(before: dict[str, Any], blank: dict[str, Any], asked: list[Question]) -> dict[str, Any]:
    """The record of an earlier run, with nothing in the places that are asked about now."""
    labels = {label_of(case) for case in CASES}  # those of a rule change with its number of cases
    before["neighbours"] = {label: row for label, row in before["neighbours"].items() if label in labels}
    for rule in blank["rules"]:
        rows = before["rules"].get(rule, {})
        held = {text: row for text, row in rows.items() if BY_ID[rule].holds_in(parse_version(text))}
        before["rules"][rule] = held
    for question in asked:
        if question.aim == "broken":
            version = str(question.version)
            before["rules"].setdefault(question.rule, {})[version] = blank["rules"][question.rule][version]
    return before


def note(record: dict[str, Any], question: Question, answer: Mapping[str, Any], *, verbose: bool) -> int:
    """Write one answer down; 1 where it differs from what the rules say."""
    version, key = str(question.version), question.rule
    apart = differences(question, answer)
    wrong = bool(apart)
    error = answer.get("error")
    said = f"{error['kind']}: {error['text']} [{error.get('at', '')}]" if error else ""
    if question.aim == "broken":
        outcome, words = verdict(question, answer)
        outcome = "differs" if apart else outcome
        wrong = outcome == "differs"
        _enter(record["rules"][key], question, outcome, _public(words))
        label = outcome
    elif question.aim == "legal":
        label = "accepted" if error is None else "refused for another reason"
        if error is not None and same_text(BY_ID[key].words_in(question.version).text or "\0", error["text"]):
            label, wrong = "refused", True
        record["neighbours"].setdefault(question.label, {})[version] = label
    else:
        label = "refused" if error else "accepted"
        kernels = [
            answer.get("resolved", {}).get(f"{p}_{w}_backend") for w in ("prefill", "decode") for p in ("dsa", "nsa")
        ]
        record["defaults"].setdefault(key, {})[version] = [name for name in kernels if name] or label
    if wrong or verbose or (question.aim == "legal" and label != "accepted"):
        words = " ".join(question.words)
        print(f"{'!' if wrong else ' '} {version} {key} {question.aim} {label}: {words} -> {said[:400]} {apart or ''}")
    return int(wrong)


def _enter(rule: dict[str, Any], question: Question, outcome: str, said: str) -> None:
    """One row per rule and version: the worst of its cases, and what was said to each."""
    before = rule[str(question.version)]
    if outcome == "not executed":
        return
    row = {**before, "outcome": outcome if before["outcome"] in {"not executed", outcome} else "differs"}
    row.pop("why", None)
    if said:
        row["said"] = {**row.get("said", {}), question.label: said}
    rule[str(question.version)] = row


def _public(text: str) -> str:
    """Without the folder of the models, and no longer than a message needs."""
    return re.sub(r"\S*/sglang-models-\w+/\S*?(?=['\",)\s]|$)", "MODEL", " ".join(text.split()))[:600]


if __name__ == "__main__":
    sys.exit(main())

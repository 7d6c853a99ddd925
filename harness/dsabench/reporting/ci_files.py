"""A check's verdicts where CI looks for them: JUnit XML, GitHub's step summary and annotations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from dsabench.errors import StoreError
from dsabench.model.verdict import Verdict
from dsabench.reporting.regression import Judgement
from dsabench.reporting.verdict_markdown import in_markdown, percent, verdicts_markdown

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def write_junit(file: Path, name: str, judgement: Judgement, faults: Sequence[str], duration_s: float) -> None:
    """A test case a verdict: `worse` fails, what stays open is skipped; a boot that failed is an error.

    Raises:
        StoreError: the file cannot be written.

    """
    verdicts = judgement.verdicts
    worse = sum(verdict.verdict == "worse" for verdict in verdicts)
    opened = sum(map(judgement.is_open, verdicts))
    counts = {"tests": len(verdicts) + len(faults), "failures": worse, "errors": len(faults), "skipped": opened}
    suite = ET.Element(
        "testsuite", {"name": _text(name), "time": f"{duration_s:.1f}"} | {k: str(v) for k, v in counts.items()}
    )
    for verdict in verdicts:
        case = ET.SubElement(
            suite, "testcase", {"classname": _text(f"{name}.{verdict.workload}"), "name": _text(verdict.metric)}
        )
        said = f"{percent(verdict.effect, verdict)} ({percent(verdict.ci_low, verdict)} to {percent(verdict.ci_high, verdict)})"
        if verdict.verdict == "worse":
            ET.SubElement(case, "failure", {"message": _text(said), "type": "regression"}).text = _text(verdict.reason)
        elif judgement.is_open(verdict):
            ET.SubElement(case, "skipped", {"message": _text(f"inconclusive: {verdict.reason}")})
        else:
            ET.SubElement(case, "system-out").text = _text(f"{verdict.verdict}: {said}; {verdict.reason}")
    for number, fault in enumerate(faults, start=1):
        case = ET.SubElement(suite, "testcase", {"classname": _text(name), "name": f"failed trial {number}"})
        ET.SubElement(case, "error", {"message": _text(fault[:300])}).text = _text(fault)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the JUnit file was not written") from error


def summary_markdown(title: str, judgement: Judgement, faults: Sequence[str]) -> str:
    """What a step summary or a pull request's comment shows."""
    lines = [verdicts_markdown(judgement.verdicts, title), "", f"**{in_markdown(judgement.sentence)}**"]
    lines += [f"- failed: {in_markdown(fault[:300])}" for fault in faults[:10]]
    return "\n".join(lines) + "\n"


def append_summary(file: Path, markdown: str) -> None:
    """Add to GitHub's step summary.

    Raises:
        StoreError: the file cannot be written.

    """
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(markdown)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the summary was not written") from error


def github_commands(title: str, judgement: Judgement) -> list[str]:
    """GitHub's workflow commands: an error a regression, a warning where it stays open, else a notice."""
    worse = [verdict for verdict in judgement.verdicts if verdict.verdict == "worse"]
    if worse:
        return [_command("error", title, _sentence(verdict)) for verdict in worse]
    return [_command("warning" if judgement.standing == "undecided" else "notice", title, judgement.sentence)]


def _sentence(verdict: Verdict) -> str:
    bounds = f"{percent(verdict.ci_low, verdict)} to {percent(verdict.ci_high, verdict)}"
    return f"{verdict.workload} {verdict.metric}: {percent(verdict.effect, verdict)} ({bounds}), {verdict.n_base} and {verdict.n_candidate} boots"


def _command(kind: str, title: str, message: str) -> str:
    """Properties and message escaped as actions/toolkit does (core/src/command.ts)."""
    data = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    head = title.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={head}::{data}"


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)

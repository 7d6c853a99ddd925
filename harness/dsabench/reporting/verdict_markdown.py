"""Verdicts as a Markdown table: for pull requests, step summaries, and people who paste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dsabench.model.verdict import Verdict, VerdictWord
from dsabench.reporting.headings import Heading, workload_of

_MARKS: dict[VerdictWord, str] = {"worse": "🔴 worse", "better": "🟢 better", "inconclusive": "🟡 inconclusive"}
_ORDER: tuple[VerdictWord, ...] = ("worse", "inconclusive", "better", "differs", "no difference")
_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "\\`*{}[]<>#|~"} | {"\n": " ", "\r": " "})


def verdicts_markdown(verdicts: Sequence[Verdict], title: str, heading: Heading = workload_of) -> str:
    """A heading, the counts, a row a verdict (the worse ones first), and what would decide the undecided."""
    counted = Counter(verdict.verdict for verdict in verdicts)
    said = ", ".join(f"{counted[word]} {word}" for word in _ORDER if counted[word])
    lines = [f"### {in_markdown(title)}", "", f"{said}.", ""]
    lines += [
        "| workload | metric | effect | interval | detectable | boots | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for verdict in sorted(verdicts, key=lambda one: _ORDER.index(one.verdict)):
        lines.append(_row(verdict, heading(verdict)))
    undecided = dict.fromkeys(
        f"- {in_markdown(heading(one))}, {in_markdown(one.metric)}: {in_markdown(one.reason)}"
        for one in verdicts
        if one.verdict == "inconclusive"
    )
    if undecided:
        lines += ["", "<details><summary>What would decide it</summary>", "", *undecided, "", "</details>"]
    return "\n".join(lines)


def _row(verdict: Verdict, heading: str) -> str:
    bounds = [percent(verdict.ci_low, verdict), percent(verdict.ci_high, verdict)]
    cells = [
        in_markdown(heading),
        in_markdown(verdict.metric),
        percent(verdict.effect, verdict),
        "–" if verdict.ci_low is None else " to ".join(bounds),
        percent(verdict.detectable_beside_effect, verdict),
        f"{verdict.n_base}/{verdict.n_candidate}",
        _MARKS.get(verdict.verdict, verdict.verdict),
    ]
    return f"| {' | '.join(cells)} |"


def percent(value: float | None, verdict: Verdict) -> str:
    """`+5.8 %`, or `+5.8 pt` of an eval; absence as a dash."""
    if value is None:
        return "–"
    return f"{100 * value:+,.1f} {'%' if verdict.unit == 'relative' else 'pt'}"


def in_markdown(text: str) -> str:
    """The text as itself: nothing in it is markup, and it stays in one line."""
    return text.translate(_ESCAPED)

"""The page of an acceptance: this machine against the published figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dsabench.errors import StoreError
from dsabench.model.record import Measured, Record
from dsabench.reporting.acceptance_plot import LoadRow, ScoreRow, draw_acceptance
from dsabench.reporting.numbers import show_figure, show_percent
from dsabench.reporting.published_comparison import NO_VERDICT, SideBySide
from dsabench.reporting.site.entry import machine_of
from dsabench.reporting.verdict_markdown import in_markdown
from dsabench.study.acceptance import Acceptance, AcceptedEval, AcceptedLoad, AcceptedServer

PAGE, PICTURE = "accept.md", "accept.svg"
_SHOWN = ("output_throughput", "total_throughput", "mean_ttft_ms", "mean_tpot_ms", "accept_length")
"""Figures of a load, of those that the published run printed."""


def write_page(name: str, command: str, found: Acceptance, folder: Path) -> Path:
    """Write page and picture into the folder of the journal.

    Raises:
        StoreError: disk full or read-only.

    """
    file = folder / PAGE
    picture = draw_acceptance(_score_rows(found), _load_rows(found), folder / PICTURE)
    try:
        file.write_text("\n".join(_lines(name, command, found, picture)) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the page was not written") from error
    return file


def answer_of(found: Acceptance) -> str:
    """The result in one sentence."""
    scores = [one.score for server in found.servers for one in server.evals]
    compared = sum(score is not None for score in scores)
    if found.below:
        return f"Below the published score: {', '.join(found.below)}."
    if found.missing:
        return f"Not finished: {', '.join(found.missing)}."
    if not compared:
        return "All is measured. No score has a published one beside it."
    return f"As accurate as published: {compared} of {compared} scores reach the published ones within their intervals."


def _lines(name: str, command: str, found: Acceptance, picture: Path | None) -> Iterator[str]:
    yield from (
        f"# {in_markdown(name)}: your node against the published",
        "",
        f"**{in_markdown(answer_of(found))}**",
        "",
    )
    yield from (f"`{command}`", "")
    record = next(filter(None, map(_any_record, found.servers)), None)
    if record is not None:
        runtime = record.environment.runtime
        yield from (f"{in_markdown(machine_of(record.environment))}, {runtime.kind} {runtime.version}.", "")
    if picture is not None:
        yield from (f"![Scores with 95 % intervals, and speeds over the published ones]({picture.name})", "")
    for server in found.servers:
        yield from _server(server)
    yield from (
        "",
        "The journal beside this page has every record; `dsabench results export node.csv --results FOLDER` writes it as one table.",
    )


def _server(server: AcceptedServer) -> Iterator[str]:
    yield from (f"## {in_markdown(server.name)}", "")
    first = _any_record(server)
    if first is not None:
        knobs = " ".join(f"{knob}={value}" for knob, value in first.trial.runtime.knobs.items())
        yield from (f"`{first.trial.runtime.model}` {in_markdown(knobs)}", "")
    if server.evals:
        yield from ("| eval | ours, 95 % interval | published | says | differs |", "|---|--:|--:|---|---|")
        yield from map(_eval, server.evals)
        yield ""
    for load in server.loads:
        yield from _load(load)


def _eval(one: AcceptedEval) -> str:
    ours = "–"
    if (metric := one.ours) is not None:
        low, high = metric.ci_low, metric.ci_high
        ours = f"{metric.value:.3f}" + ("" if low is None or high is None else f" ({low:.3f} to {high:.3f})")
    if (score := one.score) is None:
        return f"| {one.name} | {ours} | – | {one.says} | |"
    source = in_markdown(f"{score.published.model}, {score.published.source}")
    return f"| {one.name} | {ours} | {score.theirs:.3f} ({source}) | {one.says} | {in_markdown('; '.join(score.differs)) or '–'} |"


def _load(load: AcceptedLoad) -> Iterator[str]:
    yield from (f"### {in_markdown(load.name)}", "")
    if load.record is None:
        yield from ("Not measured." if load.fault is None else in_markdown(f"Failed: {load.fault}"), "")
        return
    if load.beside is None:
        yield from ("| figure | ours |", "|---|--:|")
        metrics = load.record.outcome.metrics if isinstance(load.record.outcome, Measured) else {}
        shown = ("output_throughput_tok_s", "total_throughput_tok_s", "ttft_ms.mean", "tpot_ms.mean")
        yield from (f"| {name} | {show_figure(metrics[name].value)} |" for name in shown if name in metrics)
        yield ""
        return
    beside = load.beside
    yield from (f"| figure | ours | {in_markdown(beside.base.name)} | difference |", "|---|--:|--:|--:|")
    for pair in beside.figures:
        if pair.base is not None and pair.candidate is not None:
            ours, theirs = show_figure(pair.candidate), show_figure(pair.base)
            yield f"| {pair.name} | {ours} | {theirs} | {show_percent(pair.change)} |"
    yield from ("", f"{NO_VERDICT[0].upper()}{NO_VERDICT[1:]}. {_differing(beside)}", "")


def _differing(beside: SideBySide) -> str:
    if not beside.differing:
        return "All settings that both tell are the same."
    told = (f"{one.setting} {one.candidate}, published {one.base}" for one in beside.differing)
    return f"Settings that differ: {in_markdown('; '.join(told))}."


def _any_record(server: AcceptedServer) -> Record | None:
    parts = [*(one.record for one in server.loads), *(one.record for one in server.evals)]
    return next((record for record in parts if record is not None), None)


def _score_rows(found: Acceptance) -> list[ScoreRow]:
    return [
        ScoreRow(one.name, score.ours.value, score.ours.ci_low, score.ours.ci_high, score.theirs)
        for server in found.servers
        for one in server.evals
        if (score := one.score) is not None
    ]


def _load_rows(found: Acceptance) -> list[LoadRow]:
    return [
        LoadRow(load.name, pair.name, pair.candidate / pair.base)
        for server in found.servers
        for load in server.loads
        if load.beside is not None
        for pair in load.beside.figures
        if pair.name in _SHOWN and pair.base and pair.candidate
    ]

"""A record's page: launch command, settings asked and running, timeline, metrics, failure, provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dsabench.reporting.numbers import show_date, show_duration
from dsabench.reporting.site.entry import Entry, label_of
from dsabench.reporting.site.launched import command_of, readback_of
from dsabench.reporting.site.paper import Paper
from dsabench.reporting.site.study import Study
from dsabench.reporting.site.study_page import environment_facts
from dsabench.reporting.timeline import draw_timeline, read_timeline
from dsabench.stats.intervals import BootMean

_TILES = (
    *("total_throughput_tok_s", "output_throughput_tok_s", "ttft_ms.p50", "ttft_ms.p90", "tpot_ms.p50", "itl_ms.p99"),
    *("accept_length.mean", "slo_attainment", "score", "completed", "energy_per_output_token_j", "gpu.busy_share.mean"),
)


@dataclass(frozen=True, slots=True)
class Alike:
    """All records of one trial in one environment, and what they say together: metric → its mean over boots."""

    entries: Sequence[Entry]
    repeats: Mapping[str, BootMean]


def write_record(
    paper: Paper, entry: Entry, study: Study | None, alike: Alike, samples_page: str | None = None
) -> None:
    """One page."""
    record, metrics = entry.record, entry.metrics
    version = record.environment.runtime.version
    strip, lacks = _timeline(entry)
    paper.write(
        "record.html",
        entry.page,
        entry=entry,
        record=record,
        study=study,
        label=label_of(entry.spec, study.default, study.silent)
        if study
        else " ".join(map(_pair, entry.spec.knobs.items())),
        tiles=[(name, metrics[name]) for name in _TILES if name in metrics],
        strip=strip,
        lacks_samples=lacks,
        samples_page=samples_page,
        command=command_of(entry.spec, version),
        told=readback_of(entry.spec, record.resolved, version),
        differences=_differences(entry),
        workload=[
            (name, _text(value))
            for name, value in record.trial.workload.model_dump(mode="json", exclude_none=True).items()
        ],
        metrics=sorted(metrics.items()),
        repeats=alike.repeats,
        siblings=[other for other in alike.entries if other.page != entry.page][:40],
        environment=_provenance(entry),
    )


def _timeline(entry: Entry) -> tuple[Markup | None, str | None]:
    """The drawn timeline, or the name of samples that are not there."""
    result = entry.result
    if result is None or result.samples is None or not result.samples.endswith(".parquet"):
        return None, None
    timeline = read_timeline(entry.journal.parent / result.samples)
    if timeline is None:
        return None, result.samples
    return Markup(draw_timeline(timeline, entry.workload.max_concurrency)), None  # noqa: S704  (numbers and words of ours)


def _differences(entry: Entry) -> list[str]:
    own = entry.record.resolved.get("dsabench")
    found = own.get("differences") if isinstance(own, Mapping) else None
    return [str(line) for line in found] if isinstance(found, list) else []


def _provenance(entry: Entry) -> list[tuple[str, str]]:
    record = entry.record
    return [
        ("record", f"{record.id}:{record.occasion}"),
        ("journal", str(entry.journal)),
        (
            "to see it again",
            f"dsabench results show {record.id[:10]}:{record.occasion} --results {entry.journal.parent}",
        ),
        ("study", f"{record.study}, {record.phase}, round {record.round}"),
        ("started", f"{show_date(record.started_at)}, took {show_duration(record.duration_s)}"),
        ("boot", record.boot + ("" if record.boot_s is None else f", ready after {show_duration(record.boot_s)}")),
        *environment_facts(record.environment),
    ]


def _pair(item: tuple[str, object]) -> str:
    return f"{item[0]}={item[1]}"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)

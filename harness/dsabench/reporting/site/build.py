"""From folders of results to a site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from dsabench import __version__
from dsabench.model.record import Record
from dsabench.reporting.site.entry import Entry, make_entries
from dsabench.reporting.site.extras import eval_rows, kernel_runs
from dsabench.reporting.site.history import history_panels
from dsabench.reporting.site.overview import group_studies
from dsabench.reporting.site.paper import Paper
from dsabench.reporting.site.record_page import Alike, write_record
from dsabench.reporting.site.studies import make_studies
from dsabench.reporting.site.study import Study, repeats_by_metric
from dsabench.reporting.site.study_page import write_study
from dsabench.reporting.site.tables import FOLDER, find_tables, write_tables
from dsabench.reporting.site.tradeoff import draw_tradeoff

Progress = Callable[[int, int], None]
"""Told (pages written, pages in all)."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was written."""

    index: Path
    pages: int
    studies: int


def build_site(
    found: Sequence[tuple[Path, Record]],
    places: Sequence[Path],
    folder: Path,
    metric: str | None = None,
    on_page: Progress = lambda _done, _all: None,
) -> Built:
    """Write the site into the folder: its files are replaced, others left alone.

    Args:
        found: records with the journals that hold them.
        places: where kernel times and tuned tables are looked for.
        folder: where the site goes.
        metric: what settings are ranked by; None takes each config's objective.
        on_page: progress.

    Raises:
        StoreError: disk full or read-only.

    """
    entries = make_entries(found)
    studies = make_studies(entries, metric)
    history = history_panels(entries)
    nav = [("History", "history.html")] if history else []
    paper = Paper(folder, {"version": __version__, "sources": ", ".join(map(str, places)), "nav": nav})
    tables = find_tables(places)
    paper.prepare("studies", "records", "evals", *([FOLDER] if tables else []))
    write_tables(paper, tables)
    evals = eval_rows([entry for entry in entries if not entry.is_load_test], folder)
    total, done = 1 + len(studies) + len(entries), 0
    paper.write(
        "index.html",
        "index.html",
        groups=group_studies(studies),
        tradeoff=_lead_picture(studies),
        studies=len(studies),
        records=len(entries),
        boots=len({entry.record.boot for entry in entries if not entry.record.is_refusal}),
        failed=sum(entry.failure is not None for entry in entries),
        evals=evals,
        tables=tables,
        runs=kernel_runs(places, folder),
    )
    if history:
        paper.write("history.html", "history.html", panels=history)
    for study in studies:
        write_study(paper, study)
        done += 1
        on_page(done, total)
    answers = {row.entry.page: row.samples for row in evals}
    repeats = {key: repeats_by_metric(alike) for key, alike in _by_trial(entries).items() if len(alike) > 1}
    for entry, its_study, siblings in _with_siblings(entries, studies):
        found_repeats = repeats.get(_kind(entry), {})
        write_record(paper, entry, its_study, Alike(siblings, found_repeats), answers.get(entry.page))
        done += 1
        on_page(done, total)
    return Built(folder / "index.html", total, len(studies))


def _lead_picture(studies: Sequence[Study]) -> tuple[Study, str, Markup] | None:
    """(study, workload, its trade-off) of the compared study with the most settings, a measured one where there is one."""
    compared = [one for one in studies if one.standing == 2]
    for study in sorted(compared, key=lambda one: (one.is_simulated, -len(one.settings))):
        for workload in study.workloads:
            picture = draw_tradeoff(study, workload, root="")
            if picture is not None:
                return study, workload, Markup(picture)  # noqa: S704  (drawn here, its texts escaped)
    return None


def _with_siblings(
    entries: Sequence[Entry], studies: Sequence[Study]
) -> list[tuple[Entry, Study | None, Sequence[Entry]]]:
    """Each entry with its study and all records of its trial in its environment and folder."""
    of_page = {entry.page: study for study in studies for entry in study.entries}
    alike = _by_trial(entries)
    return [(entry, of_page.get(entry.page), alike[_kind(entry)]) for entry in entries]


_Kind = tuple[str, str, Path]


def _kind(entry: Entry) -> _Kind:
    """Trial, environment, and the folder: another one may hold a patched runtime's."""
    return entry.record.id, entry.record.environment.fingerprint, entry.journal.parent


def _by_trial(entries: Sequence[Entry]) -> dict[_Kind, list[Entry]]:
    """What was measured of one kind."""
    alike: dict[_Kind, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(_kind(entry), []).append(entry)
    return alike

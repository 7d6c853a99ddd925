"""Which studies the overview shows, in which order, and under which titles."""

from __future__ import annotations

from pathlib import Path

from dsabench.model.environment import Environment
from dsabench.model.record import Record
from dsabench.reporting.site.entry import make_entries
from dsabench.reporting.site.studies import make_studies
from factories import make_record, make_spec


def record(study: str, *, labels: tuple[str, ...] = (), version: str = "1", minute: int = 0, **knobs: str) -> Record:
    made = make_record(spec=make_spec(**knobs), minute=minute)
    runtime = made.environment.runtime.model_copy(update={"version": version})
    environment = Environment.model_validate({**made.environment.model_dump(), "runtime": runtime.model_dump()})
    return made.model_copy(update={"study": study, "labels": labels, "environment": environment})


def titles(found: list[tuple[Path, Record]]) -> list[str]:
    return [study.title for study in make_studies(make_entries(found))]


def test_simulated_studies_come_after_real_ones_and_later_before_earlier(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    found = [
        (journal, record("simulated", labels=("simulated",), minute=2, prefill_backend="a")),
        (journal, record("earlier", prefill_backend="b")),
        (journal, record("later", minute=1, prefill_backend="c")),
    ]
    assert titles(found) == ["later", "earlier", "simulated"]


def test_studies_of_two_installations_with_one_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    found = [
        (tmp_path / folder / "journal.jsonl", record("slice", version=version, minute=minute, prefill_backend="a"))
        for minute, (folder, version) in enumerate([("old", "1"), ("new", "2")])
    ]
    assert titles(found) == ["slice, new", "slice, old"]


def test_arms_of_one_name_in_two_places_are_told_apart_by_the_folder_above(tmp_path: Path) -> None:
    found = [
        (tmp_path / place / arm / "journal.jsonl", record("steps", version=version, minute=minute, prefill_backend="a"))
        for minute, (place, version, arm) in enumerate(
            (place, version, arm) for place, version in (("one", "1"), ("two", "2")) for arm in ("shipped", "patched")
        )
    ]
    assert sorted(titles(found)) == [
        "steps, one/patched",
        "steps, one/shipped",
        "steps, two/patched",
        "steps, two/shipped",
    ]

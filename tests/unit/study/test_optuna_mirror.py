"""The mirror in an Optuna storage: every searched setting once, after a restart too, and nothing of the confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

import postgres
from dsabench.errors import InputError
from dsabench.results.journal import Journal
from dsabench.study.optuna_mirror import OptunaMirror
from dsabench.study.session import StudyObserver
from factories import make_failure, make_record
from studies import STUDY, load_study


class Heard(StudyObserver):
    def __init__(self) -> None:
        self.records: list[str] = []

    def record_written(self, record) -> None:
        self.records.append(record.id)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/study.db"
    else:
        with postgres.running() as found:
            yield found


def test_settings_become_trials_once(tmp_path: Path, url: str) -> None:
    config = load_study(tmp_path, STUDY)
    other = config.spec({axis.name: axis.values[-1] for axis in config.space.axes[:1]})
    journal, heard = Journal(tmp_path), Heard()
    mirror = OptunaMirror(heard, config, tmp_path, url)

    def write(mirror: OptunaMirror, spec, occasion: int = 0, **more) -> None:
        for workload in config.workloads:
            record = make_record(spec=spec, workload=workload, occasion=occasion, **more)
            record = record.model_copy(update={"study": config.name})
            journal.append(record)
            mirror.record_written(record)

    write(mirror, config.default, value=100.0)
    write(OptunaMirror(heard, config, tmp_path, url), other, outcome=make_failure())  # after a restart
    write(mirror, config.default, occasion=1, value=101.0, phase="confirm")
    assert len(heard.records) == 3 * len(config.workloads), "all of it is passed on"

    trials = optuna.load_study(study_name=config.name, storage=url).trials
    assert [(trial.state.name, trial.value) for trial in trials] == [("COMPLETE", pytest.approx(100.0)), ("FAIL", None)]
    assert trials[0].user_attrs["setting"] == "default"
    assert set(trials[1].params) == {axis.name for axis in config.space.axes}


def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    config = load_study(tmp_path, STUDY)
    with pytest.raises(InputError, match="--optuna-storage: the storage cannot be opened") as caught:
        OptunaMirror(StudyObserver(), config, tmp_path, f"sqlite:///{tmp_path}/no/such/folder/study.db")
    assert "\n" not in str(caught.value)


def test_a_storage_that_goes_away_ends_the_mirror_and_not_the_study(tmp_path: Path) -> None:
    config, notes = load_study(tmp_path, STUDY), list[str]()

    class Told(StudyObserver):
        def note(self, text: str) -> None:
            notes.append(text)

    journal = Journal(tmp_path)
    with postgres.running() as url:
        mirror = OptunaMirror(Told(), config, tmp_path, url, shared=True)
    for workload in config.workloads:
        record = make_record(spec=config.default, workload=workload).model_copy(update={"study": config.name})
        journal.append(record)
        mirror.record_written(record)
    (note,) = notes
    assert note.startswith("warning: the mirror for optuna-dashboard ends here: --optuna-storage: ")

"""Mirror a running study into an Optuna storage, so that optuna-dashboard shows it live.

Nothing is read back from there: the journal stays the only truth, and the mirror can be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError, StoreError
from dsabench.model.numerics import changed_numerics
from dsabench.model.record import Record
from dsabench.model.space import canonical
from dsabench.model.study_result import ScoredSetting
from dsabench.results.journal import Journal
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords
from dsabench.study.context import add_refusals
from dsabench.study.next_boot import BootPlan
from dsabench.study.plan import StudyPlan
from dsabench.study.postgresql import Session, line_of
from dsabench.study.session import PlannedTrial, StudyObserver

if TYPE_CHECKING:
    from optuna import Study

_SPEC = "spec"
"""The attribute of a trial that holds the id of its setting."""


class OptunaMirror(StudyObserver):
    """Pass everything on to another observer, and copy each completely searched setting to Optuna as a trial."""

    def __init__(
        self, inner: StudyObserver, config: StudyConfig, folder: Path, url: str, *, shared: bool = False
    ) -> None:
        """`url` is a storage such as `sqlite:///study.db`; it is opened at once, so that a wrong one fails before a boot. `shared`: other
        machines copy the same study.

        Raises:
            InputError: the storage cannot be opened.

        """
        self._inner, self._config, self._url, self._shared = inner, config, url, shared
        self._journal = Journal(folder)
        self._is_gone = False
        with self._turn():  # Optuna makes its tables without a lock
            self._study()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def boot_planned(self, boot: BootPlan, plan: StudyPlan) -> None:
        """Pass it on."""
        self._inner.boot_planned(boot, plan)

    def setting_planned(self, boot: BootPlan) -> None:
        """Pass it on."""
        self._inner.setting_planned(boot)

    def boot_progress(self, text: str) -> None:
        """Pass it on."""
        self._inner.boot_progress(text)

    def boot_ready(self, seconds: float) -> None:
        """Pass it on."""
        self._inner.boot_ready(seconds)

    def trial_started(self, trial: PlannedTrial) -> None:
        """Pass it on."""
        self._inner.trial_started(trial)

    def requests_done(self, done: int, total: int) -> None:
        """Pass it on."""
        self._inner.requests_done(done, total)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._inner.note(text)

    def record_written(self, record: Record) -> None:
        """Pass it on, and copy what is complete now."""
        self._inner.record_written(record)
        if record.phase == "search" or (record.phase == "gate" and self._config.gates_of_settings):
            self._try_to_copy(record)

    def for_lane(self, number: int) -> StudyObserver:
        """One lane copies for all, so that no trial is copied twice."""
        inner = self._inner.for_lane(number)
        folder = self._journal.path.parent
        return inner if number > 1 else OptunaMirror(inner, self._config, folder, self._url, shared=self._shared)

    def _try_to_copy(self, record: Record) -> None:
        """A storage that is gone costs the mirror, not the study."""
        from optuna.exceptions import OptunaError  # noqa: PLC0415
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

        if self._is_gone:
            return
        try:
            with self._turn():
                self._copy(record)
        except (InputError, StoreError, OptunaError, SQLAlchemyError) as error:
            self._is_gone = True
            self.note(f"warning: the mirror for optuna-dashboard ends here: {line_of(error)}")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Lock out the mirrors of other machines."""
        if not self._shared:
            yield
            return
        session = Session(self._url)
        try:
            with session.lock("optuna"):  # tables are for all studies
                yield
        finally:
            session.close()

    def _study(self) -> Study:
        import optuna  # noqa: PLC0415  (a second of start that most runs do without)
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            return optuna.create_study(
                study_name=self._config.name,
                storage=self._url,
                direction=self._config.objective.direction,
                load_if_exists=True,
            )
        except (optuna.exceptions.OptunaError, SQLAlchemyError, ImportError, ValueError, OSError) as error:
            raise InputError(f"--optuna-storage: the storage cannot be opened: {line_of(error)}") from error

    def _copy(self, last: Record) -> None:
        records = StudyRecords(self._config, last.environment.fingerprint, self._journal.read().records)
        add_refusals(records, self._journal.path.parent, records.latest_round)
        study = self._study()
        known = {trial.user_attrs.get(_SPEC) for trial in study.get_trials(deepcopy=False)}
        for one in scored_settings(records, records.latest_round):
            if one.spec.id not in known and not self._is_asked_next(one, last):
                study.add_trial(self._trial(one))

    def _is_asked_next(self, one: ScoredSetting, last: Record) -> bool:
        """Whether the gate is asked in the boot that measured it, which decides whether it is feasible."""
        asks = bool(self._config.gates_of_settings) and last.phase == "search" and one.spec == last.trial.runtime
        return asks and bool(changed_numerics(self._config.default, one.spec))

    def _trial(self, one: ScoredSetting) -> Any:
        from optuna.distributions import CategoricalDistribution  # noqa: PLC0415
        from optuna.trial import TrialState, create_trial  # noqa: PLC0415

        axes = {axis.name: axis.values for axis in self._config.space.axes}
        chosen: Mapping[str, Any] = canonical(self._config.space, self._config.default.knobs, one.spec.knobs)
        params = {name: value for name, value in chosen.items() if value in axes[name]}
        failed = one.score.value is None
        return create_trial(
            state=TrialState.FAIL if failed else TrialState.COMPLETE,
            value=one.score.value,
            params=params,
            distributions={name: CategoricalDistribution(axes[name]) for name in params},
            user_attrs={
                _SPEC: one.spec.id,
                "setting": one.label,
                "feasible": one.score.is_feasible,
                "why_not": one.score.why_not,
            },
        )

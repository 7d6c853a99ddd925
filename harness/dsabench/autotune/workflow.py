"""An autotune from its config to its pull request, told top to bottom."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dsabench.autotune.job import Job, Outcome, Winner, accepted, sweep_of, why_not_default
from dsabench.autotune.page import PAGE, write_page
from dsabench.autotune.price import plan_in_words, plan_stages
from dsabench.autotune.proof import TableProof, effects_in_words, prove, tables_to_prove
from dsabench.autotune.pull import request_pull
from dsabench.autotune.stages import (
    STAGES,
    TUNES,
    StageName,
    StageRecord,
    StageState,
    append_stage,
    read_stages,
    seconds_by_stage,
)
from dsabench.autotune.tunes import run_tune
from dsabench.config.specs import StudyConfig
from dsabench.doctor.run import DoctorOptions, run_checks
from dsabench.errors import InputError, TrialFault
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import StudyResult
from dsabench.model.value import digest
from dsabench.reporting.site.build import build_site
from dsabench.results.journal import claim_folder, read_journal
from dsabench.results.places import find_journals
from dsabench.signals import run_loop, stop_at_any_signal
from dsabench.tuners.of_sweep import objective_verdicts


@dataclass(frozen=True, slots=True)
class StageResult:
    """A stage at the end of a run."""

    name: StageName
    state: str
    says: str
    seconds: float
    """Over all runs."""
    measured: int
    """Trials and kernel times of this run."""


@dataclass(frozen=True, slots=True)
class AutotuneResult:
    """What a run came to."""

    stages: tuple[StageResult, ...]
    sweep: StudyResult | None
    winner: Winner | None
    """The setting that the tunes started from; None is the default."""
    tables: tuple[Path, ...]
    proofs: tuple[TableProof, ...]
    pull_request: Path | None
    """Its text."""
    page: Path
    next_steps: tuple[str, ...]
    """Commands, each with its reason in front."""

    @property
    def exit_code(self) -> int:
        """1 if the gate refused the best setting, 3 if a stage failed, else 0."""
        if self.sweep is not None and self.sweep.is_refused:
            return 1
        return 3 if any(one.state == "failed" for one in self.stages) else 0


INTERRUPTED = Outcome("open", "interrupted")


@dataclass(slots=True)
class _Log:
    """Runs stages and records them."""

    job: Job
    wanted: tuple[StageName, ...]
    known: list[StageRecord]
    ended: dict[StageName, StageRecord] = field(default_factory=dict)

    def last(self, name: StageName) -> StageRecord | None:
        """The newest record of a stage, of this run or an earlier one."""
        return next((one for one in reversed(self.known) if one.stage == name), None)

    def run(
        self,
        name: StageName,
        do: Callable[[], Outcome],
        *,
        survives: tuple[type[Exception], ...] = (InputError, TrialFault),
    ) -> Outcome:
        """Run a stage. What it survives is its outcome, not the end of the run."""
        self.job.observer.stage_started(name)
        started, since = datetime.now(UTC), time.monotonic()
        try:
            outcome = do()
        except survives as error:
            outcome = Outcome("failed", str(error))
        except KeyboardInterrupt:
            self.note(name, INTERRUPTED, started, time.monotonic() - since)
            raise
        return self.note(name, outcome, started, time.monotonic() - since)

    def note(self, name: StageName, outcome: Outcome, started: datetime, seconds: float = 0.0) -> Outcome:
        """Record an outcome, unless nothing was done and the last record says the same."""
        record = StageRecord(
            stage=name,
            state=outcome.state,
            says=outcome.says,
            seconds=round(seconds, 3),
            measured=outcome.measured,
            started_at=started,
            inputs=outcome.inputs,
            files=outcome.files,
        )
        last, told = self.last(name), ("state", "says", "inputs", "files")
        # Time that was spent counts in the price, also where the outcome is the same as before.
        spent = outcome.measured or outcome.state == "open"
        if spent or last is None or any(getattr(last, one) != getattr(record, one) for one in told):
            append_stage(self.job.own, record)
            self.known.append(record)
        self.ended[name] = record
        self.job.observer.stage_ended(record)
        return outcome

    def skip(self, name: StageName, why: str) -> None:
        """A stage that has nothing to do."""
        if name in self.wanted:
            self.note(name, Outcome("skipped", why), datetime.now(UTC))


def autotune(job: Job, wanted: tuple[StageName, ...]) -> AutotuneResult:
    """Run the stages. A second run continues where the first one stopped, and measures nothing if everything is measured.

    Raises:
        InputError: the config can give no verdict, or the runtime is not installed.
        BusyError: another run uses the folder.
        StoreError: a record cannot be written.
        KeyboardInterrupt: Ctrl-C. What was measured is kept.

    """
    stop_at_any_signal()
    with claim_folder(job.own):
        log = _Log(job, wanted, list(read_stages(job.own)))
        winner: Winner | None = None
        proofs: list[TableProof] = []
        sweep = _sweep(log) if (ready := _is_ready(log)) else None
        if ready and ("sweep" not in log.ended or log.ended["sweep"].state in ("done", "refused")):
            winner = None if sweep is None else accepted(job.config, sweep)
            spec = None if winner is None else winner.spec
            _tune(log, spec)
            _prove(log, spec, proofs)
            _deliver(log, proofs)
        return _conclude(log, sweep, winner, proofs)


def _is_ready(log: _Log) -> bool:
    """Find what would make hours of boots useless: problems of the machine, stages that cannot run."""
    job, wanted = log.job, log.wanted
    if "doctor" in wanted and log.run("doctor", lambda: _examine(job)).state == "failed":
        return False
    return "plan" not in wanted or log.run("plan", lambda: plan_in_words(plan_stages(job, wanted))).state != "failed"


def _tune(log: _Log, winner: RuntimeSpec | None) -> None:
    """Each tune starts from the winner, so that its table is for the deployment that will be run."""
    for stage, kind in TUNES.items():
        tune = log.job.config.autotune.of(kind)
        if tune is None:
            log.skip(stage, "the config does not ask for it (key autotune)")
        elif stage in log.wanted:
            log.run(stage, partial(run_tune, log.job, stage, tune, winner))


def _prove(log: _Log, winner: RuntimeSpec | None, proofs: list[TableProof]) -> None:
    job = log.job
    tables, boots = tables_to_prove(job), job.config.autotune.proof

    def compare() -> Outcome:
        proofs.extend(prove(job, file, winner, boots) for file in tables)
        state: StageState = "refused" if any(one.is_worse for one in proofs) else "done"
        return Outcome(state, "; ".join(one.says for one in proofs), sum(one.measured for one in proofs))

    if "proof" in log.wanted and tables:
        log.run("proof", compare)
    else:
        log.skip("proof", "no table to install")


def _deliver(log: _Log, proofs: Sequence[TableProof]) -> None:
    """Write the report, and the pull request with the tables that made no server slower."""
    job = log.job
    if "report" in log.wanted:
        log.run("report", lambda: _report(job, log.last("report")))
    worse = {one.file.path for one in proofs if one.is_worse}
    sent = [path for path in job.written if path not in worse]
    if "pr" in log.wanted and sent:
        measured = "\n\n".join(one.markdown for one in proofs if not one.is_worse) or None
        log.run("pr", lambda: request_pull(job, sent, measured, log.last("pr")))
    else:
        log.skip("pr", "no table to send")


def _examine(job: Job) -> Outcome:
    """Find what would make hours of boots useless."""
    findings = run_loop(run_checks(DoctorOptions(runtime=job.config.runtime, results=job.folder)))
    problems = [one for one in findings if one.verdict == "problem"]
    if problems:
        return Outcome("failed", "; ".join(f"{one.check}: {one.line}" for one in problems))
    warnings = sum(one.verdict == "warning" for one in findings)
    return Outcome("done", f"{len(findings)} checks, no problem, {warnings} warnings")


def _sweep(log: _Log) -> StudyResult | None:
    """Search, confirm and gate; without the stage, judge what is recorded. None if there is nothing."""
    job = log.job
    study = job.study(sweep_of(job.config), "sweep")
    observer = job.observer.study(job.config.objective.metric)
    if "sweep" not in log.wanted:
        try:
            return study.conclude(observer)
        except InputError:
            return None
    found: list[StudyResult] = []

    def run() -> Outcome:
        found.append(study.run(observer))
        return _outcome_of_sweep(study.config, found[0])

    # A mistake of the config or of the installation ends the run here: every later stage has it too.
    log.run("sweep", run, survives=())
    return found[0]


def _outcome_of_sweep(config: StudyConfig, result: StudyResult) -> Outcome:
    measured, best, winner = result.measured_now, result.best, accepted(config, result)
    state: StageState = "done"
    if all(record.outcome.kind == "failed" for record in result.records):
        state, says = "failed", f"every boot failed: {result.stopped or 'see dsabench results list --failed'}"
    elif result.unconfirmed:
        state, says = "open", f"{result.unconfirmed} boots of the confirmation are missing"
    elif best is None:
        says = f"the default stays: {result.stopped or 'nothing else was measured'}"
    else:
        why = why_not_default(config, result, best.spec)
        passed_over = winner is None or winner.spec != best.spec
        faster = f"{best.label}: {effects_in_words(objective_verdicts(config, result))}" + (
            f"; {why}" if why is not None else ""
        )
        if winner is not None:
            says = f"{winner.label}: {effects_in_words(winner.verdicts)}"
            says += f". Passed over: {faster}" if passed_over else ""
        elif why is not None:
            state, says = "refused", f"the default stays. Refused: {faster}"
        else:
            says = f"the default stays; the best other setting was {faster}"
    return Outcome(state, says, measured)


def _report(job: Job, before: StageRecord | None) -> Outcome:
    """A site of everything that was measured."""
    journals = find_journals(job.folder)
    inputs = digest("\n".join(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in journals))
    site = job.own / "site"
    if before is not None and before.inputs == inputs and (site / "index.html").is_file():
        return Outcome("done", before.says, inputs=inputs, files=before.files)
    found: list[tuple[Path, Record]] = [(path, record) for path in journals for record in read_journal(path).records]
    built = build_site(found, [job.folder], site)
    return Outcome("done", f"{built.studies} studies, {built.pages} pages", inputs=inputs, files=(str(built.index),))


def _conclude(
    log: _Log,
    sweep: StudyResult | None,
    winner: Winner | None,
    proofs: Sequence[TableProof],
) -> AutotuneResult:
    job, pull = log.job, log.ended.get("pr")
    spent = seconds_by_stage(log.known)
    # What earlier runs did belongs to the whole, but only this run's stages have measured now.
    found = {name: log.ended.get(name) or log.last(name) for name in STAGES}
    stages = tuple(
        StageResult(name, one.state, one.says, spent.get(name, one.seconds), one.measured if name in log.ended else 0)
        for name, one in found.items()
        if one is not None
    )
    text = Path(pull.files[0]) if pull is not None and pull.state == "done" and pull.files else None
    result = AutotuneResult(
        stages=stages,
        sweep=sweep,
        winner=winner,
        tables=tuple(job.written),
        proofs=tuple(proofs),
        pull_request=text,
        page=job.own / PAGE,
        next_steps=tuple(_next_steps(job, log, winner)),
    )
    write_page(job, result)
    return result


def _next_steps(job: Job, log: _Log, winner: Winner | None) -> list[str]:
    steps = [f"{one.stage} is not finished: {job.command}" for one in log.ended.values() if one.state == "open"]
    if winner is not None:
        steps.append(
            f"the launch command of the best setting: dsabench emit {job.folder} --as command --config {job.config.name}"
        )
    pull = log.ended.get("pr")
    if pull is not None and pull.state == "skipped" and job.written:
        steps.append(f"a pull request for these tables: {job.command} --tree CHECKOUT")
    return steps


def as_json(result: AutotuneResult) -> str:
    """One JSON object: `{stages: [{name, state, seconds, …}], verdict, tables, pr, …}`."""
    sweep = next((one.says for one in result.stages if one.name == "sweep"), None)
    return json.dumps(
        {
            "stages": [
                {
                    "name": s.name,
                    "state": s.state,
                    "seconds": round(s.seconds, 1),
                    "measured": s.measured,
                    "says": s.says,
                }
                for s in result.stages
            ],
            "verdict": sweep,
            "setting": None if result.winner is None else dict(result.winner.spec.knobs),
            "tables": [str(path) for path in result.tables],
            "proof": [verdict.model_dump() for one in result.proofs for verdict in one.comparison.verdicts],
            "pr": None if result.pull_request is None else str(result.pull_request.parent),
            "page": str(result.page),
            "next": list(result.next_steps),
        }
    )

"""Servers with and without a tuned table: the same settings, boots in turns, and the log that names the table."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.autotune.job import Job
from dsabench.autotune.tunes import plan_tune
from dsabench.config.specs import StudyConfig
from dsabench.emit.plugin import build_plugin
from dsabench.emit.served import as_points, served_lines
from dsabench.emit.tables import File, read_tables, write_table
from dsabench.errors import TrialFault
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Budget, SearchSpace
from dsabench.model.verdict import Verdict
from dsabench.reference.server.tables import FOLDER_VARIABLE
from dsabench.reporting.arms import Place, PlaceComparison, compare_places
from dsabench.reporting.headings import headings
from dsabench.reporting.verdict_markdown import percent, verdicts_markdown
from dsabench.results.journal import Journal
from dsabench.study.plan import DryRun
from dsabench.study.study import Study

DECIDES = {
    "flashmla_auto": ("prefill_backend",),
    "mha_threshold": ("mha_threshold_tokens",),
    "hisparse": (
        "hisparse_device_buffer_size",
        "hisparse_host_to_device_ratio",
        "hisparse_swap_in_block_size",
    ),
}
"""Kind of a table → the settings that it decides, which no server of the proof may have set."""
WITHOUT, WITH = "without", "with"


@dataclass(frozen=True, slots=True)
class TableProof:
    """What one table does to a server."""

    file: File
    study: StudyConfig
    comparison: PlaceComparison
    records: tuple[Record, ...]
    measured: int
    """Trials of this run."""

    @property
    def is_worse(self) -> bool:
        """Whether a workload lost."""
        return any(one.verdict == "worse" for one in self.comparison.verdicts)

    @property
    def effects(self) -> str:
        """The effect on each workload."""
        return effects_in_words(self.comparison.verdicts)

    @property
    def says(self) -> str:
        """Which table, and its effects."""
        return f"{self.file.table.kind}: {self.effects}"

    @property
    def markdown(self) -> str:
        """Servers, verdicts, and how they were compared."""
        verdicts = self.comparison.verdicts
        title = f"{self.file.table.kind}: servers with the table against servers without"
        table = verdicts_markdown(verdicts, title, headings(self.records, verdicts))
        return "\n\n".join([as_points(served_lines(self.records)), self.comparison.headline, table])


def effects_in_words(verdicts: Sequence[Verdict]) -> str:
    """Such as `p2048 +8.1 % (better), p512 -0.2 % (inconclusive)`."""
    said = (f"{one.workload} {percent(one.effect, one)} ({one.verdict})" for one in verdicts)
    return ", ".join(said) or "not confirmed"


def tables_to_prove(job: Job) -> list[File]:
    """The written tables that a server reads; a schedule of draft steps is an argument instead."""
    return [file for file in read_tables([str(path) for path in job.written]) if file.table.kind in DECIDES]


def proof_study(job: Job, kind: str, winner: RuntimeSpec | None) -> StudyConfig:
    """The tune's base without what the table decides, under the tune's workloads.

    Raises:
        InputError: as `plan_tune`.

    """
    tune = job.config.autotune.of(kind)
    assert tune is not None, "a table comes from its tune"
    study = plan_tune(job, tune, winner).config
    base = {name: value for name, value in study.runtime.base.items() if name not in DECIDES[kind]}
    return study.model_copy(
        update={
            "name": f"{study.name}-proof",
            "runtime": study.runtime.model_copy(update={"base": base}),
            "space": SearchSpace(axes=()),
            "first": (),
            "budget": Budget(max_trials=len(study.workloads), confirm_boots=0),
            "gate": None,
        }
    )


def prove(job: Job, file: File, winner: RuntimeSpec | None, boots: int) -> TableProof:
    """Boot both sides in turns until each has so many boots, and compare them.

    Raises:
        InputError: the runtime refuses the settings.
        TrialFault: a boot failed, or a server did not follow the table.

    """
    config = proof_study(job, file.table.kind, winner)
    folder = job.own / "proof" / file.table.kind
    sides = {WITHOUT: Study.from_config(config, results=folder / WITHOUT)}
    sides[WITH] = Study.from_config(
        config, results=folder / WITH, launch_env=_installed(file, folder / "table", config)
    )
    measured = 0
    for round_ in range(boots):
        order = (WITHOUT, WITH) if round_ % 2 == 0 else (WITH, WITHOUT)
        for name in order:
            study = sides[name]
            rounds = _rounds(study)
            if rounds.get(round_, 0) < len(config.workloads):
                again = bool(rounds) and round_ > max(rounds)
                side = Study(study.config, study.folder, again=again)
                result = side.run(job.observer.study(config.objective.metric))
                measured += result.measured_now
                _require_measured(name, result.records)
    records = {name: Journal(study.folder).read().records for name, study in sides.items()}
    _require_followed(folder / WITH, file, records[WITH])
    places = [Place(f"{name} the table", {".": records[name]}) for name in (WITHOUT, WITH)]
    # A plugin is a package of the environment: here it is what the sides differ in.
    comparison = compare_places(places[0], places[1], (config.objective.metric,), across=True)
    return TableProof(file, config, comparison, (*records[WITHOUT], *records[WITH]), measured)


def plan_without(job: Job, kind: str) -> DryRun:
    """The plan of the servers without a table, before the sweep's winner is known.

    Raises:
        InputError: as `plan_tune`, or the runtime refuses the settings.

    """
    return Study.from_config(proof_study(job, kind, None), results=job.own / "proof" / kind / WITHOUT).plan()


def boots_recorded(job: Job, kind: str) -> int:
    """Boots of the proof of a table that are recorded already."""
    folders = (job.own / "proof" / kind / name for name in (WITHOUT, WITH))
    return sum(len({record.boot for record in Journal(folder).read().records}) for folder in folders)


def _rounds(study: Study) -> dict[int, int]:
    """Round → how many of its workloads are recorded."""
    found: dict[int, set[str]] = {}
    for record in Journal(study.folder).read().records:
        if record.trial.runtime == study.config.default:
            found.setdefault(record.round, set()).add(record.trial.workload.name)
    return {round_: len(names) for round_, names in found.items()}


def _require_measured(name: str, records: Sequence[Record]) -> None:
    for record in records:
        if record.outcome.kind == "failed":
            message = f"the server {name} the table: {record.outcome.fault}: {record.outcome.message.splitlines()[0]}"
            raise TrialFault(record.outcome.fault, message, stage=record.outcome.stage)


def _require_followed(folder: Path, file: File, records: Sequence[Record]) -> None:
    """The log of every server must name the table: else the comparison would be of equal servers."""
    # As the reference runtime, a patched sglang and the plugin say it of a table that they follow, not of one that they have.
    line = re.compile(rb"DSA tuned table \S*" + re.escape(file.table.file_name.encode()))
    for boot in dict.fromkeys(record.boot for record in records):
        place = folder / "boots" / boot[:8]
        if not any(line.search(log.read_bytes()) for log in place.glob("*.log")):
            message = f"no log in {place} names {file.table.file_name}: the server did not follow the table"
            raise TrialFault("exited", message, stage="boot")


def _installed(file: File, folder: Path, config: StudyConfig) -> list[str]:
    """Put the table where the runtime looks, and return the variables that say so."""
    shutil.rmtree(folder, ignore_errors=True)
    if file.table.runtime == "reference":
        write_table(folder, file.table)
        return [f"{FOLDER_VARIABLE}={folder.resolve()}"]
    with zipfile.ZipFile(build_plugin([file], folder)) as wheel:
        wheel.extractall(folder)
    before = config.runtime.launch.env.get("PYTHONPATH", "")
    return [f"PYTHONPATH={os.pathsep.join(filter(None, (str(folder.resolve()), before)))}"]

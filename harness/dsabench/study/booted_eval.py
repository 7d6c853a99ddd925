"""One eval of servers that a study boots: whether it is recorded, and asking it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from dsabench.config.load import load_eval
from dsabench.evals.conduct import Setting, conduct
from dsabench.evals.fetch import find_data
from dsabench.evals.fit import fit_to
from dsabench.evals.plan import Plan, Wishes, make_plan
from dsabench.evals.run import Effort, Progress
from dsabench.evals.server import find_server
from dsabench.model.record import EvalTrial, Phase, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.secrets import without_secrets
from dsabench.runtimes.protocol import Server
from dsabench.study.session import TrialSession


async def plan_eval(name: str, data: str | None, model: str, repeat: int | None = None) -> Plan:
    """Read an eval and its questions, before anything boots.

    Raises:
        InputError: there is no such eval, or its data is missing.

    """
    spec = load_eval(name)
    file = await find_data(spec, None if data is None else Path(data), "data:")
    return make_plan(spec, Wishes(repeat=repeat), model, file)


def setting_of(session: TrialSession, server: Server, spec: RuntimeSpec) -> Setting:
    """What answers on a server of a session, and where the record goes."""
    return Setting(
        runtime=spec,
        environment=session.environment,
        journal=session.journal,
        boot=server.boot,
        study=session.study,
        boot_s=server.boot_s,
        resolved=MappingProxyType({k: without_secrets(v) for k, v in server.resolved.items()}),
    )


@dataclass(frozen=True, slots=True)
class BootedEval:
    """An eval, and where its records go."""

    session: TrialSession
    plan: Plan
    phase: Phase
    round: int = 0

    def recorded(self, spec: RuntimeSpec) -> Record | None:
        """The latest score of a setting in this environment and round."""
        found = [
            record
            for record in self.session.journal.read().records
            if record.trial.runtime == spec
            and isinstance(record.trial, EvalTrial)
            and record.trial.workload.is_part_of(self.plan.task)
            and record.environment.fingerprint == self.session.environment.fingerprint
            and (record.phase, record.round) == (self.phase, self.round)
            and isinstance(record.outcome, Scored)
        ]
        return found[-1] if found else None

    async def ask(self, spec: RuntimeSpec, server: Server) -> Record:
        """Ask all questions, or go on where an earlier run stopped; append the record.

        Raises:
            TrialFault: the server is gone; finished samples are kept.

        """
        session = self.session
        served = await find_server(server.base_url, None)
        plan = await fit_to(self.plan, served)
        setting = replace(setting_of(session, server, spec), phase=self.phase, round=self.round)
        name = plan.task.name
        session.observer.note(f"{self.label}{plan.total} samples of {name}")

        def show(at: Progress) -> None:
            if 10 * at.done >= at.total:  # the score of the first few answers is noise
                session.observer.boot_progress(f"{name}, score {at.score:.3f}")
            session.observer.requests_done(at.done, at.total)

        effort = Effort(plan.spec.concurrency, plan.spec.request_timeout_s, on_progress=show)

        def tell(kept: int) -> None:
            session.observer.note(f"{self.label}{name}: {kept} answers of an earlier run are kept")

        record = (await conduct(plan, served.target, setting, effort, tell)).record
        session.observer.record_written(record)
        return record

    @property
    def label(self) -> str:
        """Before a note."""
        return "gate: " if self.phase == "gate" else ""

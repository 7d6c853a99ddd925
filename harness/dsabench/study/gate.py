"""The accuracy gate of a study: score setting and baseline, refuse a loss.

Both answer on a server that the study booted and has measured, so a gate costs no boot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError, TrialFault
from dsabench.evals.gate import compare_scored, undecided
from dsabench.evals.gate_plan import plan_gate
from dsabench.model.numerics import changed_numerics
from dsabench.model.record import Failed, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import GateSpec
from dsabench.model.verdict import Verdict
from dsabench.runtimes.protocol import Server
from dsabench.study.booted_eval import BootedEval, plan_eval
from dsabench.study.machines import EvalsOfBoot, Machine
from dsabench.study.session import TrialSession
from dsabench.study.trial import stop_if_server_dies


@dataclass(frozen=True, slots=True)
class AccuracyGate:
    """The accuracy gate of a running study: each finalist and the default answer every eval once per round."""

    default: RuntimeSpec
    evals: tuple[EvalOfGate, ...]

    def applies(self, spec: RuntimeSpec) -> bool:
        """Whether a setting may change answers."""
        return bool(changed_numerics(self.default, spec))

    @property
    def of_finalists(self) -> Scoring:
        """All evals, of a setting that is confirmed."""
        return Scoring(lambda _: self.evals)

    @property
    def of_settings(self) -> Scoring:
        """The evals that ask every setting, in the search."""
        return Scoring(self._of_settings)

    async def complete(self, spec: RuntimeSpec) -> None:
        """Boot a searched setting for the evals that it did not answer, as where the study was killed while it did."""
        for one in self._of_settings(spec):
            await one.complete(spec)

    def _of_settings(self, spec: RuntimeSpec) -> tuple[EvalOfGate, ...]:
        may_differ = spec == self.default or self.applies(spec)
        return tuple(one for one in self.evals if one.gate.ask == "settings" and may_differ)

    async def judge(self, best: RuntimeSpec, may_boot: bool) -> tuple[Verdict, ...]:
        """Compare the scores, a verdict for each eval. A missing score leaves it undecided, which does not pass."""
        return tuple([await one.judge(best, may_boot) for one in self.evals])


@dataclass(frozen=True, slots=True)
class Scoring:
    """What the gate asks a setting in its last boot: on the server here, or on a machine of a cluster."""

    asks: Callable[[RuntimeSpec], Sequence[EvalOfGate]]

    async def __call__(self, spec: RuntimeSpec, server: Server) -> None:
        """Run the evals on a server, one after the other, unless this round already has the scores of this setting."""
        for one in self.asks(spec):
            await one.score(spec, server)

    def elsewhere(self, spec: RuntimeSpec) -> EvalsOfBoot | None:
        """What a machine is to ask; None if this round has all scores of this setting."""
        return evals_of(spec, [one for one in self.asks(spec) if one.asked.recorded(spec) is None])


@dataclass(frozen=True, slots=True)
class EvalOfGate:
    """One eval of the gate."""

    gate: GateSpec
    asked: BootedEval
    default: RuntimeSpec
    machine: Machine | None = None
    """Boots for it; None boots here."""

    async def score(self, spec: RuntimeSpec, server: Server) -> None:
        """Run the eval on a server, unless this round already has the score of this setting.

        If it is interrupted, finished samples are kept, and `judge` continues with them in a separate boot.
        """
        if self.asked.recorded(spec) is not None:
            return
        try:
            await stop_if_server_dies(server, self.asked.ask(spec, server))
        except TrialFault as fault:
            self.asked.session.observer.note(
                f"gate: {self.asked.plan.task.name} was interrupted in the measured boot ({fault.kind}: {fault.message})"
            )

    async def complete(self, spec: RuntimeSpec) -> None:
        """Boot for the eval, unless this round already has the score of this setting. A fault leaves it without one."""
        if self.asked.recorded(spec) is None:
            try:
                await self._boot_and_score(spec)
            except TrialFault as fault:
                if fault.kind == "not_gone":
                    raise
                self.asked.session.observer.note(f"gate: a setting was not scored ({fault.kind}: {fault.message})")

    async def judge(self, best: RuntimeSpec, may_boot: bool) -> Verdict:
        """Compare the scores. A missing score leaves the gate undecided, which does not pass."""
        sides: list[Record] = []
        for name, spec in (("default", self.default), ("best", best)):
            try:
                record = self.asked.recorded(spec) or (await self._boot_and_score(spec) if may_boot else None)
            except TrialFault as fault:
                return self._undecided(f"the {name} setting could not be scored: {fault.kind}: {fault.message}")
            if record is None:
                return self._undecided(f"the {name} setting is not scored yet")
            if isinstance(record.outcome, Failed):
                return self._undecided(f"the {name} setting was not scored: {record.outcome.message}")
            sides.append(record)
        return compare_scored(self.gate, self.asked.session.journal.path.parent, sides[0], sides[1])

    async def _boot_and_score(self, spec: RuntimeSpec) -> Record:
        """Boot only for the eval. This is needed only if the measured server died or was killed during the eval."""
        session = self.asked.session
        session.observer.note(f"gate: {self.asked.plan.task.name} continues in a separate boot")
        if self.machine is not None:
            await self.machine.run_boot(session, (), evals_of(spec, [self]))
            if (record := self.asked.recorded(spec)) is None:
                raise TrialFault("internal", "the machine that was asked has no score", stage="load")
            return record
        async with session.runtime.serve(spec, await session.place()) as server:
            return await stop_if_server_dies(server, self.asked.ask(spec, server))

    def _undecided(self, reason: str) -> Verdict:
        return undecided(self.gate, self.asked.plan.task.name, reason)


def evals_of(spec: RuntimeSpec, asked: Sequence[EvalOfGate]) -> EvalsOfBoot | None:
    """What a machine is to ask a setting; None is nothing."""
    if not asked:
        return None
    return EvalsOfBoot(spec, tuple(one.gate for one in asked), asked[0].default, asked[0].asked.round)


async def open_gate(
    gates: Sequence[GateSpec],
    session: TrialSession,
    default: RuntimeSpec,
    round_: int,
    machine: Machine | None = None,
) -> AccuracyGate:
    """Read the evals and their questions, all of them before anything boots.

    Raises:
        InputError: as of one eval.

    """
    return AccuracyGate(default, tuple([await _open_eval(gate, session, default, round_, machine) for gate in gates]))


async def _open_eval(
    gate: GateSpec, session: TrialSession, default: RuntimeSpec, round_: int, machine: Machine | None
) -> EvalOfGate:
    """Read an eval and its questions.

    Raises:
        InputError: there is no such eval, its data is missing, or the gate can decide nothing. A sweep reports this before it starts.

    """
    try:
        plan = await plan_eval(gate.eval, gate.data, default.model)
    except InputError as error:
        raise InputError(f"gate: {error}") from error
    if gate.measure == "agreement":
        repeats = gate.agreement_passes
    else:
        decides = plan_gate(gate, plan.spec, len(plan.questions), default.model)
        session.observer.note(f"gate: {decides.line()}")
        repeats = decides.repeats
    return EvalOfGate(gate, BootedEval(session, plan.with_repeats(repeats), "gate", round_), default, machine)

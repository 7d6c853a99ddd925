"""The gate of a sweep: the best setting and the default answer the same eval, and the best must not be less accurate."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dsabench.config.load_eval import load_eval
from dsabench.errors import InputError, TrialFault
from dsabench.evals.compare import Side, compare_evals
from dsabench.evals.conduct import Setting, conduct
from dsabench.evals.fetch import find_data
from dsabench.evals.plan import Plan, Wishes, make_plan
from dsabench.evals.run import Effort
from dsabench.evals.sample_log import read_samples
from dsabench.evals.scorers import SLOW
from dsabench.evals.scorers.mathematics import require_math_verify
from dsabench.evals.server import find_server
from dsabench.model.outcome import Failed, Scored
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.secrets import without_secrets
from dsabench.model.study import Gate
from dsabench.model.trial import EvalTrial
from dsabench.model.verdict import Verdict
from dsabench.runtimes.protocol import Place
from dsabench.trial import Bench

NUMERIC_KNOBS = frozenset(
    {
        *("kv_cache_dtype", "attention_backend", "prefill_backend", "decode_backend", "mha_threshold_tokens"),
        *("topk_backend", "fuse_topk", "mqa_logits_backend", "triton_union", "index_topk_pattern", "quantization"),
        *("moe_runner_backend", "moe_a2a_backend", "shared_experts_fusion", "hisparse", "hisparse_top_k", "dtype"),
        *("model_overrides", "simulated_accept_length", "speculative_algorithm", "deterministic", "sampling_backend"),
    }
)
"""Settings that other arithmetic runs under, so that answers may change; the rest moves work in time or space."""


def changed_numerics(default: RuntimeSpec, best: RuntimeSpec) -> tuple[str, ...]:
    """The knobs (and variables) in which two settings differ and that may change answers."""
    knobs = {name for name in {*default.knobs, *best.knobs} if default.knobs.get(name) != best.knobs.get(name)}
    env = {name for name in {*default.env, *best.env} if default.env.get(name) != best.env.get(name)}
    return tuple(sorted((knobs & NUMERIC_KNOBS) | env))


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate about to be run."""

    gate: Gate
    bench: Bench
    plan: Plan
    round: int

    async def judge(self, default: RuntimeSpec, best: RuntimeSpec) -> Verdict:
        """Score both (or find them scored in this round), and compare.

        A side that cannot be scored leaves the gate undecided, which is not a pass.
        """
        sides = []
        for name, spec in (("default", default), ("best", best)):
            try:
                record = self._recorded(spec) or await self._score(spec)
            except TrialFault as fault:
                return self._undecided(f"the {name} setting could not be scored: {fault.kind}: {fault.message}")
            if isinstance(record.outcome, Failed):
                return self._undecided(f"the {name} setting was not scored: {record.outcome.message}")
            assert isinstance(record.outcome, Scored)
            assert record.outcome.samples is not None
            samples = read_samples(self.bench.journal.path.parent / record.outcome.samples)
            sides.append(Side(name, self.plan.task.name, samples, (f"{record.id}:{record.occasion}",)))
        return compare_evals(sides[0], sides[1], self.gate.margin)

    def _recorded(self, spec: RuntimeSpec) -> Record | None:
        wanted = EvalTrial(runtime=spec, workload=self.plan.task).id
        found = [
            record
            for record in self.bench.journal.read().records
            if record.id == wanted
            and record.environment.fingerprint == self.bench.environment.fingerprint
            and (record.phase, record.round) == ("gate", self.round)
            and isinstance(record.outcome, Scored)
        ]
        return found[-1] if found else None

    async def _score(self, spec: RuntimeSpec) -> Record:
        bench, boot = self.bench, str(uuid.uuid4())
        place = Place(
            boot=boot,
            held_fds=bench.held_fds,
            folder=bench.folder / "boots" / boot[:8],
            cores=bench.server_cores,
            ready_timeout_s=bench.ready_timeout_s,
            on_progress=bench.watch.on_boot,
        )
        async with bench.runtime.serve(spec, place) as server:
            served = await find_server(server.base_url, None)
            setting = Setting(
                runtime=spec,
                environment=bench.environment,
                journal=bench.journal,
                boot=boot,
                study=bench.study,
                phase="gate",
                round=self.round,
                boot_s=server.boot_s,
                resolved=MappingProxyType({k: without_secrets(v) for k, v in server.resolved.items()}),
            )
            effort = Effort(self.plan.spec.concurrency, self.plan.spec.request_timeout_s)
            return (await conduct(self.plan, served.target, setting, effort, lambda _: None)).record

    def _undecided(self, reason: str) -> Verdict:
        return Verdict(
            metric="score",
            workload=self.plan.task.name,
            unit="points",
            verdict="inconclusive",
            n_base=0,
            n_candidate=0,
            reason=reason,
        )


async def prepare_gate(gate: Gate, bench: Bench, model: str, round_: int) -> GateRun:
    """Read the eval and its questions.

    Raises:
        InputError: no such eval, no data file, or its grader is not installed; better told before a sweep than after.

    """
    spec = load_eval(gate.eval)
    if spec.scorer in SLOW:
        require_math_verify()
    try:
        data = await find_data(spec, None if gate.data is None else Path(gate.data), "data:")
        plan = make_plan(spec, Wishes(repeat=gate.repeat), model, data)
    except InputError as error:
        raise InputError(f"gate: {error}") from error
    return GateRun(gate, bench, plan, round_)

"""A study on several machines at once: whose boots are compared, and what a machine that goes away leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.config.load import load_study
from dsabench.errors import MachineGone
from dsabench.model.record import Record
from dsabench.results.journal import Journal
from dsabench.study.machines import EvalsOfBoot
from dsabench.study.session import PlannedTrial, TrialSession
from dsabench.study.study import Study
from factories import ENVIRONMENT
from pretended import PretendedCluster, PretendedMachine

CONFIG = """
name: several
runtime: {kind: reference, model: tiny, base: {kv_cache_dtype: bfloat16, chunked_prefill_size: 64}}
workloads:
  - {name: chat, dataset: random-ids, input_len: 16, output_len: 2, num_prompts: 12, max_concurrency: 2}
  - {name: document, dataset: random-ids, input_len: 64, output_len: 2, num_prompts: 12, max_concurrency: 2}
sweeps: [{axes: {chunked_prefill_size: [64, 128, 256, 512]}}]
proposer: {kind: grid}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: BUDGET
"""


@dataclass
class LeavingMachine(PretendedMachine):
    """One that is gone at a boot of the confirmation."""

    leaves_at: int = 10**9
    confirmed: int = 0

    async def run_boot(
        self, session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot | None = None
    ) -> tuple[Record, ...]:
        self.confirmed += trials[0].phase == "confirm"
        if self.confirmed > self.leaves_at:
            raise MachineGone("b is gone")
        return await super().run_boot(session, trials, evals)


def run(
    folder: Path, machines: Sequence[PretendedMachine], budget: str = "{confirm_boots: 5}", pairs: int = 5
) -> tuple[Record, ...]:
    file = folder / "several.yaml"
    file.write_text(CONFIG.replace("BUDGET", budget))
    result = Study(load_study(file), folder / "r").run_on(PretendedCluster(machines))
    assert [one.verdict for one in result.verdicts] == ["better", "better"]
    assert {one.n_base for one in result.verdicts} == {pairs}
    return tuple(one for one in Journal(folder / "r").read().records if one.phase == "confirm")


def machine(name: str, leaves_at: int = 10**9) -> LeavingMachine:
    there = ENVIRONMENT.model_copy(update={"machine": name})
    return LeavingMachine(lambda _: None, there, 0.05, leaves_at=leaves_at)


def of_turns(records: Sequence[Record]) -> dict[int, list[str | None]]:
    found = defaultdict[int, list[str | None]](list)
    for one in records:
        assert one.turn is not None
        found[one.turn].append(one.environment.machine)
    return found


def test_all_machines_confirm_and_each_pair_is_of_one(tmp_path: Path) -> None:
    turns = of_turns(run(tmp_path, [machine(name) for name in "abc"]))
    assert sorted(turns) == [0, 1, 2, 3, 4]
    assert all(len(one) == 4 and len(set(one)) == 1 for one in turns.values()), turns
    assert {one[0] for one in turns.values()} == {"a", "b", "c"}


def test_where_looks_may_end_it_one_machine_confirms(tmp_path: Path) -> None:
    turns = of_turns(run(tmp_path, [machine(name) for name in "ab"], "{confirm_boots: 5, stop_when_decided: true}", 3))
    assert len({one for of_turn in turns.values() for one in of_turn}) == 1


def test_the_pair_of_a_machine_that_goes_begins_again_on_another(tmp_path: Path) -> None:
    records = run(tmp_path, [machine("a"), machine("b", leaves_at=1)])
    turns = of_turns(records)
    assert sorted(turns) == [0, 1, 2, 3, 4]
    (cut,) = (one for one in turns.values() if "b" in one)
    assert Counter(cut) == {"a": 4, "b": 2}, "one boot of it was there, with both loads"
    assert all(one == ["a"] * 4 for one in turns.values() if one is not cut)
    assert run(tmp_path, [machine("a"), machine("b")]) == records, "nothing is left where it is back"

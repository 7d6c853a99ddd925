"""What a machine of a cluster sends: progress, records with their files, logs, and why it ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.distributed.booter import Booter, BootOrder, Message
from dsabench.errors import InputError
from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Record, Scored, Trial
from dsabench.model.study import GateSpec
from dsabench.study.machines import EvalsOfBoot
from dsabench.study.session import PlannedTrial
from far_servers import of_booters
from studies import SHORT_EVAL, STUDY, load_study


@pytest.fixture(autouse=True)
def _same_cores() -> Iterator[None]:
    """A booter confines its process to its share and goes to the folder of whoever asks."""
    cores, folder = os.sched_getaffinity(0), Path.cwd()
    yield
    os.sched_setaffinity(0, cores)
    os.chdir(folder)


@asynccontextmanager
async def booter(
    folder: Path, text: str = STUDY, index: int = 0, of: int = 1
) -> AsyncIterator[tuple[Booter, BootOrder]]:
    config = load_study(folder, text)
    trials = [Trial(runtime=config.default, workload=one) for one in config.workloads]
    ordered = tuple(PlannedTrial(one, 0, "search") for one in trials)
    made = Booter(config.runtime.model_dump_json(), index, of, str(Path.cwd()))
    try:
        yield made, BootOrder(study="study", trials=ordered, ready_timeout_s=60, labels=("far",))
    finally:
        await made.close()


async def test_each_record_comes_with_its_files(tmp_path: Path) -> None:
    async with booter(tmp_path) as (made, order):
        environment = Environment.model_validate_json(await made.environment())
        for _ in range(2):  # nothing of an order is left for the next one
            messages = [one async for one in made.boot(order.model_dump_json())]
            records = [Record.model_validate_json(one.text) for one in messages if one.kind == "record"]
            assert [one.trial for one in records] == [one.trial for one in order.trials]
            assert {one.environment for one in records} == {environment}
            assert {(one.study, one.labels[-1]) for one in records} == {("study", "far")}
            for message, record in zip([one for one in messages if one.kind == "record"], records, strict=True):
                assert isinstance(record.outcome, Measured)
                assert list(message.files) == [record.outcome.samples]
            kinds = [one.kind for one in messages if one.kind not in {"progress", "requests", "note"}]
            assert kinds == ["ready", "started", "record", "started", "record", "logs"]
            assert b"Listening on" in messages[-1].files[f"boots/{records[0].boot[:8]}/server.log"]
            assert max(one.numbers for one in messages if one.kind == "requests") == (12, 12)


async def test_a_gate_is_asked_behind_the_trials_or_alone(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    gate = GateSpec(eval=str(tmp_path / "short.yaml"), margin=0.2, repeat=2)
    async with booter(tmp_path) as (made, order):
        await made.environment()
        spec = order.trials[0].trial.runtime
        evals = EvalsOfBoot(spec, (gate,), spec, round=0)
        behind = order.model_copy(update={"trials": order.trials[:1], "evals": evals})
        messages = [one async for one in made.boot(behind.model_dump_json()) if one.kind == "record"]
        measured, scored = (Record.model_validate_json(one.text) for one in messages)
        assert isinstance(measured.outcome, Measured)
        assert isinstance(scored.outcome, Scored)
        assert (scored.phase, scored.boot) == ("gate", measured.boot)
        assert list(messages[1].files) == [scored.outcome.samples]

        alone = {"trials": (), "evals": replace(evals, round=1), "known": (scored,)}
        messages = [
            one async for one in made.boot(order.model_copy(update=alone).model_dump_json()) if one.kind == "record"
        ]
        (again,) = (Record.model_validate_json(one.text) for one in messages)
        assert (again.id, again.round, again.occasion) == (scored.id, 1, 1)


async def test_a_niceness_that_the_node_keeps_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsabench.distributed.booter.as_node_was_started", lambda: 15)
    async with booter(tmp_path) as (made, order):
        await made.environment()
        one = order.model_copy(update={"trials": order.trials[:1]}).model_dump_json()
        told = [[message.text async for message in made.boot(one) if message.kind == "note"] for _ in range(2)]
        first, again = (" ".join(lines) for lines in told)
        assert "(niceness 15); start Ray there with RAY_worker_niceness=0" in first
        assert "niceness" not in again


async def test_it_stops_in_the_middle(tmp_path: Path) -> None:
    async with booter(tmp_path) as (made, order):
        await made.environment()
        messages = made.boot(order.model_dump_json())
        assert await anext(messages)
        await made.stop()
        rest = [one.kind async for one in messages]
        assert "record" not in rest
    assert not of_booters()


async def test_a_fault_of_ours_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("gpu")

    monkeypatch.setattr("dsabench.distributed.booter.run_boot", broken)
    async with booter(tmp_path) as (made, order):
        await made.environment()
        with pytest.raises(KeyError, match="gpu"):
            assert [one.kind async for one in made.boot(order.model_dump_json())] == []


async def test_the_users_mistake_is_told(tmp_path: Path) -> None:
    text = STUDY.replace("dataset: random-ids, input_len: 48", "dataset: custom, dataset_path: gone.jsonl")
    data = tmp_path / "gone.jsonl"
    data.write_text("{}\n")
    text = text.replace("gone.jsonl", str(data))
    async with booter(tmp_path, text) as (made, order):
        data.unlink()
        await made.environment()
        *_, last, logs = [one async for one in made.boot(order.model_dump_json())]
        assert logs.kind == "logs"
        assert last == Message("input_error", last.text)
        assert "gone.jsonl" in last.text


async def test_more_booters_than_cores_is_one_line(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    async with booter(tmp_path, index=cores, of=cores + 1) as (made, _):
        with pytest.raises(InputError, match="each takes a core at least"):
            await made.environment()

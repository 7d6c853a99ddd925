"""What a study takes from the journals of earlier ones."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from dsabench.config.load import find_mistakes
from dsabench.config.specs import MemorySpec, StudyConfig
from dsabench.errors import InputError
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Metric, Record
from dsabench.model.runtime import RuleViolation, RuntimeSpec, refuse_nothing
from dsabench.model.space import key_of
from dsabench.model.study_result import ObjectiveScore, ScoredSetting
from dsabench.results.journal import Journal
from dsabench.runtimes.kinds import make_runtime
from dsabench.study.landscape import LandscapeSetting
from dsabench.study.memory import Memory, error_of, relative, remember
from dsabench.study.next_boot import before_the_proposer
from dsabench.study.replay import memory_of, search
from dsabench.study.study import Study
from dsabench.study.synthetic import generate
from factories import ENVIRONMENT, make_failure, make_record, make_workload, write_kernel_times
from studies import STUDY, Noting, load_study, write_study

FAST, FASTER, SLOW = (
    {"prefill_backend": kernel, "chunked_prefill_size": size}
    for kernel, size in (("flashmla_sparse", 256), ("flashmla_sparse", 128), ("flashmla_kv", 128))
)


def earlier(folder: Path, *records: Record) -> None:
    journal = Journal(folder)
    for record in records:
        journal.append(record)


def study(folder: Path, first: str, text: str = STUDY) -> StudyConfig:
    return load_study(folder, f"{text}\nfirst: {first}\n")


def measured(config: StudyConfig, setting: dict[str, object], *values: float, **changes: object) -> list[Record]:
    """One record per workload of another study of the same model."""
    loads = [make_workload(f"load-{place}") for place in range(len(values))]
    records = [
        make_record(spec=config.spec(setting), workload=load, value=value)
        for load, value in zip(loads, values, strict=True)
    ]
    return [record.model_copy(update=changes) for record in records]


@pytest.fixture
def config(tmp_path: Path) -> StudyConfig:
    (tmp_path / "old").mkdir()
    return study(tmp_path, "{from: old, winners: 2}")


def test_the_best_settings_of_an_earlier_study_come_first(config: StudyConfig, tmp_path: Path) -> None:
    """By all its workloads: one with a record lost cannot be compared."""
    earlier(
        tmp_path / "old",
        *measured(config, FAST, 100.0, 90.0),
        *measured(config, FASTER, 120.0, 95.0),
        *measured(config, SLOW, 50.0, 40.0),
        *measured(config, {}, 999.0),
    )
    memory = remember(config, ENVIRONMENT)
    assert memory.winners == (FASTER, FAST)
    assert memory.lines == (f"{tmp_path / 'old'}: 2 winners first, 0 known failures skipped",)
    plan = Study.from_config(config, results=tmp_path / "new").plan()
    assert [dict(one.spec.knobs) for one in plan.upcoming[:1]] == [dict(config.default.knobs)]


def test_winners_follow_the_listed_settings_and_precede_the_proposer(config: StudyConfig, tmp_path: Path) -> None:
    earlier(tmp_path / "old", *measured(config, FASTER, 120.0), *measured(config, FAST, 100.0))
    listed = study(tmp_path, "{from: [old], winners: 2, settings: [{chunked_prefill_size: 128}]}")
    winners = remember(listed, ENVIRONMENT).winners
    space = listed.space.model_copy(update={"enqueued": winners})
    ahead = before_the_proposer(listed.model_copy(update={"space": space}))
    assert ahead == [listed.spec(SLOW), listed.spec(FASTER), listed.spec(FAST)]


def test_several_journals_give_their_best_in_turns(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    config = study(tmp_path, "{from: [one, two], winners: 2}")
    earlier(tmp_path / "one", *measured(config, FAST, 9.0), *measured(config, FASTER, 8.0))
    earlier(tmp_path / "two", *measured(config, SLOW, 900.0), *measured(config, FAST, 800.0))
    assert remember(config, ENVIRONMENT).winners == (FAST, SLOW)


def test_what_broke_a_constraint_or_lies_outside_the_space_is_no_winner(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    limited = STUDY.replace("maximize}", "maximize, constraints: [{metric: itl_ms.p90, max: 10}]}")
    config = study(tmp_path, "{from: old}", limited)

    def with_gap(setting: dict[str, object], value: float, gap_ms: float) -> list[Record]:
        metrics = {
            "output_throughput_tok_s": Metric(value=value, n=9),
            "itl_ms.p90": Metric(value=gap_ms, n=9),
        }
        return measured(config, setting, value, outcome=Measured(metrics=metrics))

    earlier(
        tmp_path / "old",
        *with_gap(FASTER, 200.0, 11.0),
        *with_gap(FAST, 100.0, 9.0),
        *with_gap({"chunked_prefill_size": 64}, 300.0, 9.0),
        *with_gap({"max_running_requests": 3, "chunked_prefill_size": 128}, 300.0, 9.0),
    )
    assert remember(config, ENVIRONMENT).winners == (FAST,)


@pytest.mark.parametrize("what", ["model", "version", "hardware"])
def test_another_model_version_or_machine_tells_nothing(config: StudyConfig, tmp_path: Path, what: str) -> None:
    changed = {
        "version": {"runtime": ENVIRONMENT.runtime.model_copy(update={"version": "0.0.9"})},
        "hardware": {"hardware": ENVIRONMENT.hardware.model_copy(update={"cpu_cores": 64})},
    }
    record = make_record(spec=config.spec(FAST))
    if what == "model":
        record = make_record(spec=config.spec(FAST).model_copy(update={"model": "small"}))
    else:
        record = record.model_copy(update={"environment": ENVIRONMENT.model_copy(update=changed[what])})
    earlier(tmp_path / "old", record)
    memory = remember(config, ENVIRONMENT)
    assert memory.winners == ()
    assert memory.lines == (f"{tmp_path / 'old'}: no records of this model, hardware and version",)


def make_environment(config: StudyConfig) -> Environment:
    """That of this machine."""
    return asyncio.run(collect_environment(asyncio.run(make_runtime(config.runtime).identity())))


def failed(config: StudyConfig, setting: dict[str, object], **changes: object) -> Record:
    failure = make_failure().model_copy(update={"fault": "out_of_memory", "message": "no memory\nmore", **changes})
    return make_record(spec=config.spec(setting), outcome=failure, workload=make_workload(str(changes)))


def test_a_boot_that_failed_for_good_is_not_tried_again_and_the_record_is_the_reason(
    config: StudyConfig, tmp_path: Path
) -> None:
    earlier(tmp_path / "old", failed(config, FAST), failed(config, {}))
    memory = remember(config, ENVIRONMENT)
    refuse = memory.refuse(refuse_nothing, config.default)
    violation = refuse(config.spec(FAST))
    assert violation is not None
    assert violation.line == (
        f"memory: it failed on 2026-01-01 ({tmp_path / 'old' / 'journal.jsonl'}): out_of_memory: no memory"
    )
    assert refuse(config.spec(SLOW)) is None
    assert refuse(config.default) is None, "all others are compared with the default"
    assert Memory().refuse(refuse_nothing, config.default) is refuse_nothing


@pytest.mark.parametrize(
    "changes",
    [{"transient": True}, {"fault": "boot_timeout"}, {"stage": "load"}, {"fault": "port_in_use"}],
    ids=str,
)
def test_a_failure_that_may_not_come_again_is_tried_again(
    config: StudyConfig, tmp_path: Path, changes: dict[str, object]
) -> None:
    earlier(tmp_path / "old", failed(config, FAST, **changes))
    assert remember(config, ENVIRONMENT).failed == {}


def test_a_setting_that_ran_once_is_no_known_failure(config: StudyConfig, tmp_path: Path) -> None:
    earlier(tmp_path / "old", failed(config, FAST), *measured(config, FAST, 10.0))
    assert remember(config, ENVIRONMENT).failed == {}


def test_a_known_failure_is_refused_in_the_plan_and_costs_no_boot(tmp_path: Path) -> None:
    """On this machine, whose environment is the journal's."""
    config = load_study(tmp_path)
    here = make_environment(config)
    (tmp_path / "old").mkdir()
    earlier(tmp_path / "old", failed(config, FAST).model_copy(update={"environment": here}))
    noting = Noting()
    plan = Study.from_config(study(tmp_path, "{from: old}"), results=tmp_path / "new").plan(noting)
    assert noting.notes == [f"first: {tmp_path / 'old'}: 0 winners first, 1 known failure skipped"]
    space = plan.plan.space
    assert (space.settings, space.refused, dict(space.by_rule)) == (3, 1, {"memory": 1})
    assert "out_of_memory: no memory" in space.lines["memory"]
    assert config.spec(FAST) not in [one.spec for one in plan.upcoming if one.refusal is None]


def test_all_settings_of_the_space_teach_relative_to_their_journal(config: StudyConfig, tmp_path: Path) -> None:
    earlier(tmp_path / "old", *measured(config, FAST, 400.0), *measured(config, SLOW, 100.0))
    told = {key_of(one.setting): one.value for one in remember(config, ENVIRONMENT).earlier}
    assert told == pytest.approx({key_of(FAST): 2.0, key_of(SLOW): 0.5})


LANDSCAPE = generate("smooth", 1003)


def of_earlier_study(values: Callable[[LandscapeSetting], float]) -> Memory:
    """Forty settings of the landscape, with other values."""
    drawn = random.Random(5).sample([one for one in LANDSCAPE.settings if one.value is not None], 40)
    changed = tuple(one.model_copy(update={"value": values(one)}) for one in drawn)
    return memory_of(LANDSCAPE.model_copy(update={"settings": changed}), LANDSCAPE, winners=0)


def settings_to_the_best(memory: Memory | None) -> float:
    searches = [search(LANDSCAPE, "gp", seed, within=0.03, most=45, memory=memory) for seed in range(5)]
    return median(len(one.regrets) if (boots := one.boots_to(0.03)) is None else boots for one in searches)


def test_gp_starts_from_what_earlier_values_let_expect() -> None:
    """The same landscape at another level, with 5 % noise."""
    rng = random.Random(1)
    known = of_earlier_study(lambda one: 0.1 * (one.value or 0.0) * math.exp(rng.gauss(0.0, 0.05)))
    assert settings_to_the_best(known) <= 0.7 * settings_to_the_best(None)


def test_what_is_wrong_is_not_believed_for_long() -> None:
    """What was good then is bad now."""
    known = of_earlier_study(lambda one: 1.0 / (one.value or 1.0))
    assert settings_to_the_best(known) <= 1.5 * settings_to_the_best(None)


def test_a_sweep_says_how_far_earlier_values_were_off(config: StudyConfig) -> None:
    told = tuple(relative([(FAST, 10.0), (FASTER, 12.0), (SLOW, 5.0)]))
    knowing = config.model_copy(update={"space": config.space.model_copy(update={"earlier": told})})

    def measured_now(*values: float | None) -> list[ScoredSetting]:
        """The default too, which was not measured before."""
        settings = ({}, FAST, FASTER, SLOW)
        scores = [ObjectiveScore(value, 0.0) for value in (70.0, *values)]
        return [
            ScoredSetting(config.spec(setting), "", score) for setting, score in zip(settings, scores, strict=False)
        ]

    assert error_of(knowing, measured_now(100.0, 126.0, 50.0)) == (
        "first: 3 of these settings were measured before; their ratios differ by 0.0% (median)"
    )
    off = error_of(knowing, measured_now(100.0, 144.0, 40.0))
    assert off is not None
    assert "20.0%" in off or "25.0%" in off
    assert error_of(knowing, measured_now(100.0, 126.0)) is None
    assert error_of(knowing, measured_now(100.0, 126.0, None)) is None, "one failed"
    assert error_of(config, measured_now(100.0, 126.0, 50.0)) is None


KERNELS = {
    "dense_prefill torch_mha bf16": lambda b, q, kv: 0.01 * b * q * kv,
    "kv_expand torch_mm bf16": lambda b, q, kv: 1.0 * b * kv,
    "sparse_prefill torch_flashmla_kv fp8": lambda b, q, kv: 900.0 * b * q**0.5,
    "sparse_prefill torch_flashmla_sparse fp8": lambda b, q, kv: 600.0 * b * q**0.5,
    "indexer_ragged torch_by_head bf16": lambda b, q, kv: 0.02 * b * q * kv,
    "topk_select torch_select bf16": lambda b, q, kv: 1.0 * b * q,
    "absorb torch_bmm bf16": lambda b, q, kv: 1.0 * b * q,
    "sparse_decode torch_flashmla_kv fp8": lambda b, q, kv: 30.0 * b**0.5 * kv**0.2,
}
"""`flashmla_sparse` is faster, and so are long chunks."""

CHUNKED = STUDY.replace("input_len: 48", "input_len: 240").replace("input_len: 96", "input_len: 200")


@pytest.fixture
def by_kernels(tmp_path: Path) -> StudyConfig:
    write_kernel_times(tmp_path / "times", ENVIRONMENT, KERNELS)
    return study(tmp_path, "{kernels: times}", CHUNKED)


def test_what_kernel_times_let_expect_to_be_fastest_comes_first(by_kernels: StudyConfig, tmp_path: Path) -> None:
    memory = remember(by_kernels, ENVIRONMENT)
    assert memory.winners == (FAST,)
    assert memory.lines == (
        f"{tmp_path / 'times'}: kernel times tell the expected speed of 4 settings; 1 setting first",
    )
    values = {key_of(one.setting): one.value for one in memory.earlier}
    assert values[key_of(FAST)] > values[key_of(FASTER)] > values[key_of(SLOW)]
    assert math.prod(values.values()) == pytest.approx(1.0)

    def refuse(spec: RuntimeSpec) -> RuleViolation | None:
        return RuleViolation("no", "no") if spec == by_kernels.spec(FAST) else None

    assert remember(by_kernels, ENVIRONMENT, refuse).winners[0] != FAST


def test_an_objective_that_is_a_time_is_the_smallest_where_the_speed_is_the_largest(tmp_path: Path) -> None:
    write_kernel_times(tmp_path / "times", ENVIRONMENT, KERNELS)
    text = CHUNKED.replace(
        "metric: output_throughput_tok_s, direction: maximize", "metric: ttft_ms.p50, direction: minimize"
    )
    memory = remember(study(tmp_path, "{kernels: times, winners: 2}", text), ENVIRONMENT)
    values = {key_of(one.setting): one.value for one in memory.earlier}
    assert memory.winners[0] == FAST
    assert values[key_of(FAST)] == min(values.values())


def test_what_was_served_tells_more_than_kernels(tmp_path: Path) -> None:
    write_kernel_times(tmp_path / "times", ENVIRONMENT, KERNELS)
    (tmp_path / "old").mkdir()
    config = study(tmp_path, "{from: old, kernels: times, winners: 2}", CHUNKED)
    earlier(tmp_path / "old", *measured(config, SLOW, 900.0), *measured(config, FASTER, 800.0))
    memory = remember(config, ENVIRONMENT)
    assert memory.winners == (SLOW, FAST)
    assert {one.told_by for one in memory.earlier} == {"kernels"}, "two settings tell gp nothing"
    earlier(
        tmp_path / "old",
        *measured(config, FAST, 700.0),
        *measured(config, {"prefill_backend": "flashmla_kv", "chunked_prefill_size": 256}, 600.0),
    )
    assert {one.told_by for one in remember(config, ENVIRONMENT).earlier} == {"study"}


def test_kernel_times_of_other_hardware_tell_nothing(by_kernels: StudyConfig, tmp_path: Path) -> None:
    other = ENVIRONMENT.model_copy(update={"hardware": ENVIRONMENT.hardware.model_copy(update={"cpu_cores": 64})})
    memory = remember(by_kernels, other)
    assert (memory.winners, memory.earlier) == ((), ())
    assert memory.lines == (f"{tmp_path / 'times'}: no kernel times of this hardware for a setting of this study",)


def test_a_sweep_says_how_far_kernel_times_were_off(by_kernels: StudyConfig) -> None:
    memory = remember(by_kernels, ENVIRONMENT)
    knowing = by_kernels.model_copy(update={"space": memory.into(by_kernels.space)})
    scored = [
        ScoredSetting(by_kernels.spec(one.setting), "", ObjectiveScore(7.0 * one.value, 0.0)) for one in memory.earlier
    ]
    assert error_of(knowing, scored) == (
        "first: kernel times told the ratios of 4 of these settings; they differ by 0.0% (median)"
    )


def test_a_sweep_begins_with_what_kernel_times_let_expect(tmp_path: Path) -> None:
    """On this machine, with the times of its kernels."""
    here = make_environment(load_study(tmp_path))
    write_kernel_times(tmp_path / "times", here, KERNELS)
    config = study(tmp_path, "{kernels: times}", CHUNKED)
    plan = Study.from_config(config, results=tmp_path / "new").plan()
    assert [one.spec for one in plan.upcoming[:2]] == [config.default, config.spec(FAST)]


def test_mistakes_name_the_line(tmp_path: Path) -> None:
    def lines(first: str) -> list[str]:
        path = write_study(tmp_path, f"{STUDY}\nfirst: {first}\n")
        return [str(one).removeprefix(f"{path}:") for one in find_mistakes(path)]

    line = len(f"{STUDY}\nfirst:".splitlines())
    (tmp_path / "old").mkdir()
    assert lines("{from: old}") == []
    assert lines("{from: nowhere}") == [f"{line}: first.from: nowhere: no such folder"]
    assert "first.form: unknown key 'form'; did you mean from?" in lines("{form: old}")[0]
    assert "first.from" in lines("{from: 3}")[0]
    assert lines("{kernels: nowhere}") == [f"{line}: first.kernels: nowhere: no such folder"]
    assert "needs `from` or `kernels`" in lines("{winners: 2}")[0]
    assert "first.settings[0].chunked_prefill_size: 64 is not searched" in " ".join(
        lines("{from: old, settings: [{chunked_prefill_size: 64}]}")
    )


def test_a_folder_without_a_journal_is_a_mistake(config: StudyConfig) -> None:
    with pytest.raises(InputError, match="old: no journal there"):
        remember(config, ENVIRONMENT)
    wanted = MemorySpec(kernels=config.memory.journals[0], winners=1)
    with pytest.raises(InputError, match=r"first.kernels: .*old: no kernel times there"):
        remember(config.model_copy(update={"memory": wanted}), ENVIRONMENT)

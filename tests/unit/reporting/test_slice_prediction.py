"""The slices' predictions: every deployment of the shipped studies has its slice, and errors are what was put in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Metric, Record
from dsabench.reporting.comparison import Side
from dsabench.reporting.slice_findings import Order, conclusions, effects_of, orders_of
from dsabench.reporting.slice_prediction import PREDICTED_METRICS, predict
from dsabench.runtimes.sglang.rank import shape_of, strategy_of
from dsabench.search.space import legal
from dsabench.store.journal import Journal
from factories import make_record

ROOT = Path(__file__).parents[3]
NAMES = {
    2: ("tp2", "dp2", "dp2,ep2"),
    4: ("tp4", "dp4", "dp4,ep4", "tp2,dp2"),
}


def config_of(name: str) -> StudyConfig:
    return load_study(ROOT / "configs" / f"{name}.yaml")


def slices_of(gpus: int) -> list[StudyConfig]:
    folder = ROOT / "configs" / f"h200-x{gpus}-predict"
    return [load_study(file) for file in sorted(folder.glob("*.yaml"))]


def measured(config: StudyConfig, rate: float, minute: int = 0, time_ms: float = 10.0) -> Iterable[Record]:
    """A record of every setting and load of a config; MTP doubles its speed."""
    for assignment in legal(config.space, config.default.knobs):
        spec = config.spec(assignment)
        speed = 2.0 if spec.knobs["speculative_algorithm"] == "EAGLE" else 1.0
        values = {
            metric: speed * rate if METRICS[metric].direction == "maximize" else time_ms / speed
            for metric in PREDICTED_METRICS
        }
        for workload in config.workloads:
            outcome = Measured(metrics={name: Metric(value=value, n=32) for name, value in values.items()})
            yield make_record(spec=spec, workload=workload, outcome=outcome, minute=minute, occasion=minute)


def whole(gpus: int, rate: float = 100.0, minute: int = 0) -> list[Record]:
    return list(measured(config_of(f"h200-x{gpus}-slice"), rate, minute))


def ranks(gpus: int, rate: float = 100.0, minute: int = 0) -> list[Record]:
    return [record for config in slices_of(gpus) for record in measured(config, rate, minute)]


@pytest.mark.parametrize("gpus", [2, 4])
def test_every_deployment_and_load_of_the_study_has_its_slice(gpus: int) -> None:
    found = predict(Side("whole", tuple(whole(gpus))), Side("ranks", tuple(ranks(gpus))), ["total_throughput_tok_s"])
    assert found.unpredicted == ()
    names = {one.deployment.name for one in found.held}
    assert names == {*NAMES[gpus], *(f"{name},mtp" for name in NAMES[gpus])}
    assert len(found.held) == len(names) * 2


def test_rates_are_those_of_all_groups_and_times_those_of_one_rank() -> None:
    found = predict(Side("whole", tuple(whole(4))), Side("ranks", tuple(ranks(4, rate=30.0))), PREDICTED_METRICS)
    errors = {
        (one.deployment.name, one.metric): round(one.error, 6)
        for one in found.held
        if one.metric in ("total_throughput_tok_s", "ttft_ms.p50")
    }
    assert errors["tp4", "total_throughput_tok_s"] == -0.7
    assert errors["dp4", "total_throughput_tok_s"] == 0.2
    assert errors["dp4,ep4,mtp", "total_throughput_tok_s"] == 0.2
    assert errors["tp2,dp2", "total_throughput_tok_s"] == -0.4
    assert {error for (_, metric), error in errors.items() if metric == "ttft_ms.p50"} == {0.0}


def test_an_interval_takes_two_boots_a_side() -> None:
    once = predict(Side("w", tuple(whole(2))), Side("r", tuple(ranks(2))), ["total_throughput_tok_s"])
    assert {one.interval for one in once.held} == {None}
    records = [*whole(2), *whole(2, 104.0, minute=1)], [*ranks(2), *ranks(2, 102.0, minute=1)]
    twice = predict(Side("w", tuple(records[0])), Side("r", tuple(records[1])), ["total_throughput_tok_s"])
    for one in twice.held:
        assert one.boots == (2, 2)
        assert one.interval is not None
        assert one.interval[0] < one.error < one.interval[1]


def test_another_load_or_chunk_is_no_prediction() -> None:
    other = [record.trial.workload.model_copy(update={"num_prompts": 8}) for record in ranks(2)]
    small = [
        make_record(spec=record.trial.runtime, workload=workload, outcome=record.outcome)  # type: ignore[arg-type]
        for record, workload in zip(ranks(2), other, strict=True)
    ]
    with pytest.raises(InputError, match="has no slice of a deployment"):
        predict(Side("w", tuple(whole(2))), Side("r", tuple(small)), ["total_throughput_tok_s"])
    chunked = [
        make_record(
            spec=record.trial.runtime.model_copy(
                update={"knobs": {**record.trial.runtime.knobs, "chunked_prefill_size": 512}}
            ),
            workload=record.trial.workload,  # type: ignore[arg-type]
            outcome=record.outcome,
        )
        for record in ranks(2)
    ]
    with pytest.raises(InputError, match="has no slice of a deployment"):
        predict(Side("w", tuple(whole(2))), Side("r", tuple(chunked)), ["total_throughput_tok_s"])


def test_slices_named_first_are_no_deployments() -> None:
    with pytest.raises(InputError, match="ranks has no measured deployment of several GPUs"):
        predict(Side("ranks", tuple(ranks(2))), Side("whole", tuple(whole(2))), ["total_throughput_tok_s"])


def test_other_gpus_or_another_runtime_are_said() -> None:
    other = [
        record.model_copy(
            update={
                "environment": record.environment.model_copy(
                    update={"runtime": record.environment.runtime.model_copy(update={"version": "9"})}
                )
            }
        )
        for record in ranks(2)
    ]
    sides = Side("w", tuple(whole(2))), Side("r", tuple(other))
    with pytest.raises(InputError, match="measured with different runtime: --across-environments"):
        predict(*sides, ["total_throughput_tok_s"])
    assert predict(*sides, ["total_throughput_tok_s"], across=True).held


def test_what_follows_from_the_errors() -> None:
    """All deployments alike when measured; the slices say that dp2 is twice as fast as tp2, and MTP's effect rightly."""
    held = predict(Side("w", tuple(whole(2))), Side("r", tuple(ranks(2))), ["total_throughput_tok_s"]).held
    (order, _) = orders_of(held, "total_throughput_tok_s")
    assert (order.pairs, order.agreeing) == (0, 0)
    effects = effects_of(held, "total_throughput_tok_s")
    assert {(one.setting, one.against, one.agrees) for one in effects} == {
        ("tp2,mtp", "tp2", True),
        ("dp2,mtp", "dp2", True),
        ("dp2,ep2,mtp", "dp2,ep2", True),
    }
    said = " ".join(conclusions(held, "total_throughput_tok_s"))
    assert "errors from +0.0% to +100.0%" in said
    assert "may not be read from its slice" in said
    assert "settings: 6 of 6 effects point the measured way" in said
    assert "rest on one boot of a side" in said


def tp2_alone(rates: tuple[float, ...]) -> str:
    """The first conclusion where only tp2 was measured at 100, and its slice at these rates, a boot each."""
    minutes = range(len(rates))
    kept = [r for m in minutes for r in whole(2, 100.0 + m / 100, minute=m) if r.trial.runtime.knobs["dp_size"] == 1]
    slices = [record for minute in minutes for record in ranks(2, rates[minute], minute=minute)]
    held = predict(Side("w", tuple(kept)), Side("r", tuple(slices)), ["total_throughput_tok_s"]).held
    return conclusions(held, "total_throughput_tok_s")[0]


def test_a_figure_may_be_read_where_the_interval_says_so() -> None:
    assert "may be read from its slice takes more boots" in tp2_alone((101.0,))
    assert "may be read from its slice takes more boots" in tp2_alone((95.0, 108.0))
    assert "own figure may be read from its slice (limit 10%)" in tp2_alone((101.0, 101.1))
    assert "own figure may not be read from its slice" in tp2_alone((130.0,))


def test_a_wrong_order_is_said() -> None:
    slow = [record for record in whole(2) if record.trial.runtime.knobs["dp_size"] == 1]
    fast = [record for record in whole(2, rate=30.0) if record.trial.runtime.knobs["dp_size"] == 2]
    held = predict(Side("w", (*slow, *fast)), Side("r", tuple(ranks(2))), ["total_throughput_tok_s"]).held
    order = orders_of(held, "total_throughput_tok_s")[0]
    assert order.measured[0] == "tp2"
    assert order.predicted[-1] == "tp2"
    assert (order.pairs, order.agreeing) == (2, 0)
    assert any("slices may not choose between them" in line for line in conclusions(held, "total_throughput_tok_s"))


def of_four(rates: Mapping[str, float], predicted: Mapping[str, float]) -> tuple[Order, tuple[str, ...]]:
    """The order of `prompt`, and what follows, where deployments and slices were measured at these rates."""

    def at_rates(records: Iterable[Record], rates_of: Callable[[Record], float]) -> tuple[Record, ...]:
        found = []
        for record in records:
            metrics = {"total_throughput_tok_s": Metric(value=rates_of(record), n=32)}
            found.append(record.model_copy(update={"outcome": Measured(metrics=metrics)}))
        return tuple(found)

    def of_whole(record: Record) -> float:
        shape = shape_of(record.trial.runtime)
        assert shape is not None
        return rates[strategy_of(shape)]

    def of_rank(record: Record) -> float:
        return predicted[record.trial.runtime.model.removeprefix("slices/v3.2-").removesuffix("-8l")]

    plain = [r for r in whole(4) if r.trial.runtime.knobs["speculative_algorithm"] == "off"]
    sides = Side("w", at_rates(plain, of_whole)), Side("r", at_rates(ranks(4), of_rank))
    held = predict(*sides, ["total_throughput_tok_s"]).held
    return orders_of(held, "total_throughput_tok_s")[0], conclusions(held, "total_throughput_tok_s")


def test_one_slice_for_two_deployments_orders_nothing() -> None:
    """dp4 and ep4 have one slice; measured they differ twofold. tp4 and tp2,dp2 differ by 2 % when predicted."""
    order, said = of_four(
        {"tp4": 200, "dp4": 100, "dp4,ep4": 50, "tp2,dp2": 202}, {"tp4": 204, "dp4": 20, "tp2-dp2": 101}
    )
    assert order.shown == ("tp2,dp2 ≈ tp4 > dp4 > dp4,ep4", "tp4 ≈ tp2,dp2 > dp4 ≈ dp4,ep4")
    assert (order.pairs, order.agreeing, order.too_close) == (5, 4, 1)
    assert (order.opposed, order.undecided, order.invented) == ((), ("dp4 > dp4,ep4",), ())
    assert any("of 10 pairs" in line and "8 in that order, 0 the other way round, 2 alike" in line for line in said)
    assert "put alike: prompt dp4 > dp4,ep4; answer dp4 > dp4,ep4" in said


def test_a_difference_that_only_slices_see_is_said() -> None:
    order, said = of_four(
        {"tp4": 100, "dp4": 102, "dp4,ep4": 103, "tp2,dp2": 50}, {"tp4": 200, "dp4": 25, "tp2-dp2": 10}
    )
    assert order.invented == ("tp4 > dp4", "tp4 > dp4,ep4")
    assert (order.pairs, order.agreeing, order.too_close) == (3, 3, 3)
    assert "deployments: of 6 pairs that differ by less when measured, slices put 4 apart" in said
    assert any("slices may not choose between all of them" in line for line in said)


def test_slices_that_see_what_was_measured_may_order() -> None:
    _, said = of_four({"tp4": 100, "dp4": 400, "dp4,ep4": 404, "tp2,dp2": 200}, {"tp4": 90, "dp4": 90, "tp2-dp2": 90})
    assert any("slices put 10 in that order, 0 the other way round, 0 alike: slices may order these" in s for s in said)
    assert not any(line.startswith("put ") for line in said)


def test_a_slice_of_two_nodes_or_of_context_parallelism_is_not_cut() -> None:
    spec = config_of("h200-x2-slice").default
    shape = shape_of(spec)
    assert shape is not None
    assert strategy_of(shape) == "tp2"
    for knobs in ({"prefill_cp": True}, {"pp_size": 2}, {"dp_size": 2}):
        assert shape_of(spec.model_copy(update={"knobs": {**spec.knobs, **knobs}})) is None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, records in (("whole", whole(2)), ("ranks/tp2", ranks(2)[2:]), ("ranks/rest", ranks(2)[:2])):
        for record in records:
            Journal(tmp_path / folder).append(record)
    words = ["compare", str(tmp_path / "whole"), str(tmp_path / "ranks"), "--slice"]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "dp2,ep2,mtp: answer" in text
    assert "1 and 1 boots" in text
    assert "what follows" in text
    assert max(map(len, text.splitlines())) <= 80
    assert run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {one["deployment"] for one in data["predictions"]} == {name for n in NAMES[2] for name in (n, f"{n},mtp")}
    assert run([*words, "--gate"]) == 2


def test_a_measurement_in_which_the_server_stood_still_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Records of four H200 from before the warning: their samples say it."""
    results = ROOT / "results" / "h200"
    assert run(["compare", str(results / "x4"), str(results / "x4-predict"), "--slice", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["stood_still"]
    assert line.startswith("f9b0aa69cd:0 (answer): the server stood still: no token from any stream for 5.1 s")

"""The slices' predictions: every deployment of the shipped studies has its slice, and errors are what was put in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_sweep
from dsabench.config.specs import SweepConfig
from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.model.outcome import Measured, Metric
from dsabench.model.record import Record
from dsabench.reporting.comparison import Side
from dsabench.reporting.slice_findings import conclusions, effects_of, orders_of
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


def config_of(name: str) -> SweepConfig:
    return load_sweep(ROOT / "configs" / f"{name}.yaml")


def slices_of(gpus: int) -> list[SweepConfig]:
    folder = ROOT / "configs" / f"h200-x{gpus}-predict"
    return [load_sweep(file) for file in sorted(folder.glob("*.yaml"))]


def measured(config: SweepConfig, rate: float, minute: int = 0, time_ms: float = 10.0) -> Iterable[Record]:
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

from __future__ import annotations

from dsabench.model.record import Measured, Metric
from dsabench.reporting.repeats import repeats_of
from factories import make_failure, make_record, make_spec


def test_all_boots_of_the_same_trial_count() -> None:
    records = [make_record(occasion=i, value=value) for i, value in enumerate([100.0, 110.0, 120.0])]
    others = [make_record(spec=make_spec(page_size=1), value=1.0), make_record(occasion=9, outcome=make_failure())]
    found = repeats_of(records[0], [*records, *others])["output_throughput_tok_s"]
    assert (found.boots, found.mean) == (3, 110.0)
    assert found.interval is not None
    assert found.interval.low < 100.0
    assert found.interval.high > 120.0


def test_one_boot_is_no_repeat() -> None:
    records = [make_record(occasion=i, boot="one", value=value) for i, value in enumerate([1.0, 2.0])]
    assert repeats_of(records[0], records) == {}


def test_confirmation_boots_go_before_those_of_the_search() -> None:
    search = make_record(occasion=0, value=200.0)
    confirmed = [make_record(occasion=i, value=value, phase="confirm") for i, value in ((1, 100.0), (2, 102.0))]
    found = repeats_of(search, [search, *confirmed])["output_throughput_tok_s"]
    assert (found.boots, found.mean) == (2, 101.0)


def test_extremes_have_no_mean() -> None:
    outcome = Measured(metrics={"itl_ms.max": Metric(value=1.0, n=9), "itl_ms.p50": Metric(value=1.0, n=9)})
    records = [make_record(occasion=i, outcome=outcome) for i in range(2)]
    assert list(repeats_of(records[0], records)) == ["itl_ms.p50"]

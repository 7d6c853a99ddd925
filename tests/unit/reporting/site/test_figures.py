from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsabench.emit.tables import write_table
from dsabench.model.sample import Frames, RequestSample
from dsabench.reporting.site.knob_effects import main_effects
from dsabench.reporting.site.load_curves import curves_of, knee
from dsabench.reporting.site.tables import find_tables
from dsabench.reporting.site.tradeoff import Point, front
from dsabench.reporting.timeline import draw_timeline, read_timeline
from dsabench.results.samples import write_samples
from factories import make_workload
from unit.emit.made import made_table


def point(x: float, y: float) -> Point:
    return Point(x, y, f"{x} {y}", None)  # type: ignore[arg-type]  (no page is drawn)


def test_the_front_holds_what_nobody_beats_in_both() -> None:
    points = [point(1, 5), point(2, 4), point(2, 9), point(3, 9), point(4, 12), point(5, 1)]
    assert [(p.x, p.y) for p in front(points, lambda one: (one.x, one.y))] == [(1, 5), (2, 9), (4, 12)]


def test_loads_of_one_kind_make_a_curve_and_two_do_not() -> None:
    loads = [make_workload(name=f"c{c}", max_concurrency=c) for c in (8, 1, 4)]
    other = [make_workload(name=f"long{c}", input_len=999, max_concurrency=c) for c in (1, 2)]
    ((unit, found),) = curves_of([*loads, *other])
    assert unit == "requests in flight"
    assert [load.at for load in found] == [1, 4, 8]
    assert knee([10, 30, 40], [1.0, 1.2, 4.0]) == 1


def test_effects_are_relative_to_all_settings() -> None:
    seen = [({"a": 1, "b": "x"}, 100.0), ({"a": 2, "b": "x"}, 400.0)]
    assert main_effects(seen) == {"a": {1: (pytest.approx(-0.5), 1), 2: (pytest.approx(1.0), 1)}}


def test_the_timeline_counts_what_the_samples_say(tmp_path: Path) -> None:
    samples = [
        RequestSample(0, 0.0, 0.0, 2.0, 8, 3, Frames.of([(0.5, 1), (1.0, 2)])),
        RequestSample(1, 0.0, 1.0, 1.5, 8, 3, error="refused"),
        RequestSample(2, 0.0, 1.0, 3.0, 8, 3, Frames.of([(2.0, 1), (2.25, 1), (3.0, 1)])),
    ]
    write_samples(tmp_path, "one.parquet", samples)
    timeline = read_timeline(tmp_path / "one.parquet")
    assert timeline is not None
    np.testing.assert_allclose(timeline.gap_ms, [500, 250, 750])
    np.testing.assert_allclose(timeline.first_s, [0.5, np.nan, 2.0])
    assert timeline.is_failed.tolist() == [False, True, False]
    svg = draw_timeline(timeline)
    assert "3 requests over 3 seconds, 1 failed" in svg
    assert read_timeline(tmp_path / "none.parquet") is None


def test_a_table_is_listed_once_wherever_copies_of_it_lie(tmp_path: Path) -> None:
    """A proof keeps a copy beside its servers; the one with a picture stands for both."""
    for folder in ("proof", "tables"):
        file = write_table(tmp_path / folder, made_table())
    file.with_suffix(".svg").write_text("<svg/>")
    ((row,),) = [find_tables([tmp_path])]
    assert (row.file, row.picture) == (file, "1-flashmla_auto-16.svg")

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from dsabench.errors import InputError, StoreError
from dsabench.model.sample import NO_FRAMES
from dsabench.reporting.timeline import RequestTimeline, read_timeline, write_timeline
from dsabench.results.samples import write_samples
from factories import make_workload
from unit.load.made import closed_loop, sample

FOUR = make_workload(max_concurrency=4)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    "samples",
    [
        closed_loop(4, 10),
        closed_loop(4, 10, tokens=200),  # enough gaps to be summed up per bin
        [*closed_loop(4, 10), sample(40, 1.0, error="reset: gone", frames=NO_FRAMES)],
        [sample(0, tokens=1)],
    ],
)
def test_the_file_is_an_svg_whatever_the_samples_are(tmp_path: Path, samples) -> None:
    svg = write_timeline(samples, tmp_path / "new" / "run", "<b>$x$ & \u00e9 \x07", FOUR)
    assert svg == tmp_path / "new" / "run.svg"
    root = ET.fromstring(svg.read_bytes())
    assert root.tag == f"{SVG}svg"
    assert len(root.findall(f".//{SVG}path[@class='axis']")) == 4
    assert "<b>$x$ & \u00e9 \ufffd" in [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "title", ["W" * 200, "study, document: " + " ".join(f"a_long_knob_{i}=value" for i in range(14))]
)
def test_a_long_title_is_whole_and_inside_the_picture(tmp_path: Path, title: str) -> None:
    root = ET.fromstring(write_timeline(closed_loop(4, 10), tmp_path / "run.svg", title, FOUR).read_bytes())
    lines = [text.text or "" for text in root.findall(f"{SVG}text") if text.get("class") is None]
    assert "".join(lines).replace(" ", "") == title.replace(" ", "")
    assert max(map(len, lines)) * 10.8 < 640  # a W of 11 pixels is no wider


def test_the_same_samples_give_the_same_picture_from_memory_and_from_a_file(tmp_path: Path) -> None:
    samples = closed_loop(4, 10)
    first = write_timeline(samples, tmp_path / "a.svg", "t", FOUR).read_bytes()
    assert write_timeline(samples, tmp_path / "b.svg", "t", FOUR).read_bytes() == first
    write_samples(tmp_path, "one.parquet", samples)
    stored = read_timeline(tmp_path / "one.parquet")
    assert stored is not None
    for name in RequestTimeline.__slots__:
        from_memory = getattr(RequestTimeline.of(samples), name)
        np.testing.assert_allclose(getattr(stored, name), from_memory, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_steady_state_is_shaded_where_there_is_one(tmp_path: Path) -> None:
    with_window = write_timeline(closed_loop(4, 10), tmp_path / "a.svg", "t", FOUR).read_text()
    without = write_timeline(closed_loop(4, 10), tmp_path / "a.svg", "t").read_text()
    assert with_window.count('<rect class="steady"') == 4
    assert "steady state: " in with_window
    assert "steady" not in without.partition("</style>")[2]


def test_a_failed_request_is_a_cross(tmp_path: Path) -> None:
    samples = [*closed_loop(4, 10), sample(40, 1.0, error="reset: gone", frames=NO_FRAMES)]
    text = write_timeline(samples, tmp_path / "a.svg", "t").read_text()
    assert "41 requests, 1 failed (crosses)" in text
    assert '<path class="failed"' in text


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no request brought a token"):
        write_timeline([sample(error="x", frames=NO_FRAMES)], tmp_path / "a.svg", "t")
    with pytest.raises(InputError, match=r"written as \.svg"):
        write_timeline([sample()], tmp_path / "a.png", "t")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="was not written"):
        write_timeline([sample()], tmp_path / "file" / "a.svg", "t")

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.image import imread

from dsabench.errors import InputError, StoreError
from dsabench.model.sample import NO_FRAMES
from dsabench.reporting.timeline import draw_timeline
from factories import make_workload
from unit.load.made import closed_loop, sample

FOUR = make_workload(max_concurrency=4)


def size_of(png: Path) -> tuple[int, int]:
    header = png.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20]), int.from_bytes(header[20:24])


@pytest.mark.parametrize(
    "samples",
    [
        closed_loop(4, 10),
        closed_loop(4, 10, tokens=200),  # enough gaps to be summed up per bin
        [*closed_loop(4, 10), sample(40, 1.0, error="reset: gone", frames=NO_FRAMES)],
        [sample(0, tokens=1)],
    ],
)
def test_svg_and_png_are_written(tmp_path: Path, samples) -> None:
    svg, png = draw_timeline(samples, tmp_path / "new" / "run.svg", "<b>$x$ & \u00e9", FOUR)
    assert (svg.name, png.name) == ("run.svg", "run.png")
    assert size_of(png) == (800, 860)
    root = ET.fromstring(svg.read_bytes())
    assert root.tag.endswith("svg")


@pytest.mark.parametrize(
    "title", ["W" * 200, "study, document: " + " ".join(f"a_long_knob_{i}=value" for i in range(14))]
)
def test_a_long_title_is_whole(tmp_path: Path, title: str) -> None:
    _, png = draw_timeline(closed_loop(4, 10), tmp_path / "run.svg", title, FOUR)
    picture = imread(png)[:60, :, :3]
    assert picture.min() < 0.5  # the title is there
    assert picture[:, :3].min() == picture[:, -3:].min() == 1.0  # and nothing of it on the edges


def test_the_same_samples_give_the_same_picture(tmp_path: Path) -> None:
    samples = closed_loop(4, 10)
    first, _ = draw_timeline(samples, tmp_path / "a.svg", "t", FOUR)
    second, _ = draw_timeline(samples, tmp_path / "b.png", "t", FOUR)
    assert first.read_bytes() == second.read_bytes()


def test_the_steady_state_is_shaded_where_there_is_one(tmp_path: Path) -> None:
    texts = []
    for workload in (FOUR, None):
        svg, _ = draw_timeline(closed_loop(4, 10), tmp_path / "a.svg", "t", workload)
        texts.append(svg.read_text())
    assert "#e8e8e8" in texts[0]
    assert "#e8e8e8" not in texts[1]


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no request brought a token"):
        draw_timeline([sample(error="x", frames=NO_FRAMES)], tmp_path / "a.svg", "t")
    with pytest.raises(InputError, match=r"written as \.svg and \.png"):
        draw_timeline([sample()], tmp_path / "a.pdf", "t")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="was not written"):
        draw_timeline([sample()], tmp_path / "file" / "a.svg", "t")

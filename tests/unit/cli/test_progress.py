"""What a terminal of 80 columns shows while a sweep runs."""

from __future__ import annotations

import io
import re
from typing import Any, cast

import pytest
from rich.console import Console

from dsabench.cli.progress import BarProgress
from dsabench.config.load import load_study
from dsabench.study.forecast import CostEstimate
from dsabench.study.next_boot import BootPlan
from dsabench.study.plan import StudyPlan
from factories import make_record, make_spec

CONFIG = load_study("local")
PLAN = StudyPlan(
    config=CONFIG,
    space=cast("Any", None),
    cost=CostEstimate(boot_s=2, trial_s=1, measured=False),
    lanes=1,
    boots_done=0,
    search_settings=6,
    search_boots=6,
    confirm_boots=6,
    trials_total=24,
    time_left_s=None,
)


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def bars(screen: io.StringIO) -> BarProgress:
    observer = BarProgress(
        Console(file=screen, force_terminal=True, width=80, color_system=None), "output_throughput_tok_s"
    )
    observer.boot_planned(BootPlan(make_spec(), CONFIG.workloads, "search", "default"), PLAN)
    return observer


def last_frame(bars: BarProgress, screen: io.StringIO) -> str:
    """The lines of the display when it ends. Ending draws it once more."""
    bars.note("NOTE")
    bars.__exit__(None, None, None)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", screen.getvalue().rpartition("NOTE")[2].rpartition("boots")[2])


def test_the_time_left_is_shown_from_the_first_second(bars: BarProgress, screen: io.StringIO) -> None:
    frame = last_frame(bars, screen)
    assert "· about 48 s left (assumed)" in frame
    assert "0/12" in frame


@pytest.mark.parametrize(
    ("said", "label", "count"),
    [
        ("capturing CUDA graphs 3 of 20", "capturing CUDA graphs", "3/20"),
        ("loading weights, shard 41 of 163", "loading weights", "41/163"),
        ("compiling DeepGEMM kernels 7 of 9", "compiling DeepGEMM kernels", "7/9"),
        ("joining the ranks", "joining the ranks", "0/?"),
    ],
)
def test_a_step_of_a_boot_that_counts_is_a_bar(
    bars: BarProgress, screen: io.StringIO, said: str, label: str, count: str
) -> None:
    bars.boot_progress(said)
    frame = last_frame(bars, screen)
    (line,) = [one for one in frame.splitlines() if label in one]
    assert count in line
    assert " of " not in line


def test_what_a_server_says_neither_moves_the_bars_nor_becomes_markup(bars: BarProgress, screen: io.StringIO) -> None:
    bars.boot_progress("[red]x[/red] " + "y" * 200)
    frame = last_frame(bars, screen)
    assert "[red]x[/red]" in frame
    assert max(map(len, frame.splitlines())) <= 80


def test_a_record_stays_above_the_bars(bars: BarProgress, screen: io.StringIO) -> None:
    bars.record_written(make_record(value=512.0))
    frame = last_frame(bars, screen)
    assert "short: output_throughput_tok_s 512" in screen.getvalue().partition("NOTE")[0]
    assert "0/12" in frame

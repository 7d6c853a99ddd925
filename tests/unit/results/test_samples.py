from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsabench.errors import StoreError
from dsabench.model.sample import NO_FRAMES, Frames, RequestSample
from dsabench.results.samples import read_samples, samples_name, write_samples

OLD = Path(__file__).parents[2] / "golden" / "samples" / "before-dp-rank.parquet"
SAMPLES = (
    RequestSample(
        0,
        0.0,
        2**-10,
        1.5,
        64,
        3,
        Frames.of([(0.5, 1), (1.5, 2)]),
        64,
        0,
        1.5,
        None,
        dp_rank=3,
        finish_reason="length",
        count_source="total",
    ),
    RequestSample(1, 0.125, 0.125, 0.25, 64, 3, NO_FRAMES, None, None, None, "http: 503 busy"),
)


def test_times_take_little_room(tmp_path: Path) -> None:
    """They are kept to a microsecond, and their bytes are stored by place: 20,000 times of 8 bytes take less than 3 bytes each."""
    at_s = [0.001 * number + 1e-7 * (number * 7919 % 997) for number in range(20_000)]
    frames = Frames.of([(one, 1) for one in at_s])
    write_samples(tmp_path, "one.parquet", [RequestSample(0, 1 / 3, 2 / 3, 20.1, 8, 20_000, frames)])
    read = read_samples(tmp_path / "one.parquet")[0]
    assert (tmp_path / "one.parquet").stat().st_size < 3 * len(at_s)
    assert list(read.frames.at_s) == pytest.approx(at_s, rel=0, abs=1e-6)
    assert list(read.frames.tokens) == list(frames.tokens)
    assert (read.scheduled_s, read.sent_s, read.done_s) == pytest.approx((1 / 3, 2 / 3, 20.1), rel=0, abs=1e-6)


def test_the_committed_results_stay_quick_to_clone() -> None:
    root = Path(__file__).parents[3]
    listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=root, capture_output=True, check=False).stdout
    sizes = [(root / name).stat().st_size for name in listed.decode().split("\0") if name and (root / name).is_file()]
    assert sum(sizes) < 25_000_000


def test_round_trip_keeps_absence(tmp_path: Path) -> None:
    name = samples_name("ab" * 32, "cd" * 8, 2)
    write_samples(tmp_path, name, SAMPLES)
    assert read_samples(tmp_path / name) == SAMPLES
    assert [path.name for path in (tmp_path / "samples").iterdir()] == [Path(name).name]


def test_samples_of_an_older_version_are_read() -> None:
    """Written before data-parallel rank and finish reason were kept."""
    samples = read_samples(OLD)
    assert samples
    assert all(one.dp_rank is None and one.finish_reason is None for one in samples)
    assert all(one.count_source == "frames" and one.output_tokens == one.output_len_asked for one in samples)


def test_a_folder_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="were not written"):
        write_samples(tmp_path, samples_name("ab" * 32, "cd" * 8, 0), SAMPLES)

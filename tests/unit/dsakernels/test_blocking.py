from __future__ import annotations

import pytest

from dsakernels.triton_kernels.blocking import parts_for

HOPPER = 132


@pytest.mark.parametrize(("sequences", "parts"), [(1, 16), (8, 8), (32, 2), (64, 1), (80, 4), (128, 1), (160, 2)])
def test_few_queries_are_cut_until_the_processors_are_busy(sequences: int, parts: int) -> None:
    assert parts_for(sequences, 128, 2048, HOPPER) == parts


@pytest.mark.parametrize("sequences", [200, 256, 512, 1000, 16384])
def test_many_are_not_cut_for_the_last_round_alone(sequences: int) -> None:
    """256 sequences of 128 heads in 16 parts: 3.94 rounds in place of 4, and 2 GB to join."""
    assert parts_for(sequences, 128, 2048, HOPPER) == 1


def test_no_part_is_shorter_than_128_rows() -> None:
    assert parts_for(1, 8, 64, HOPPER) == 1
    assert parts_for(1, 8, 256, HOPPER) == 2

"""The short form of `python tests/kill_sweeps.py --kills 50`."""

from __future__ import annotations

import pytest

import kill_sweeps

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_sweeps_killed_at_random_moments_lose_nothing_and_leave_nothing() -> None:
    tally = kill_sweeps.run(kills=4, seed=20)
    assert tally.problems == []
    assert tally.kills == 4
    assert tally.sweeps_finished >= 2

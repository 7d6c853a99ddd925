from __future__ import annotations

import asyncio
import time

import pytest

from dsabench.load.health import watching


async def test_an_idle_loop_is_on_time() -> None:
    async with watching() as watch:
        await asyncio.sleep(0.3)
    health = watch.health([0.0001] * 5, 1.0)
    assert health.lag_p50_ms < 10.0
    assert health.saturated is None
    assert health.cpu_share < 0.5
    assert health.send_lag_max_ms == pytest.approx(0.1)


async def test_a_pause_counts_for_every_tick_it_swallowed() -> None:
    """0.4 s of standstill in 0.8 s: half of the ticks were late, though the timer saw it once."""
    async with watching() as watch:
        await asyncio.sleep(0.2)
        time.sleep(0.4)  # noqa: ASYNC251
        await asyncio.sleep(0.2)
    health = watch.health([], 1.0)
    assert health.lag_max_ms > 350.0
    assert health.lag_p50_ms == pytest.approx(0.0, abs=60.0)
    assert health.saturated is not None
    assert "event loop" in health.saturated


async def test_a_client_without_idle_time_is_saturated() -> None:
    async with watching() as watch:
        end = time.process_time() + 1.0
        while time.process_time() < end:
            await asyncio.sleep(0)
    watch._wall_s = watch._cpu_s / 0.991  # other processes of this machine may have taken their part
    saturated = watch.health([], 1.0).saturated
    assert saturated is not None
    assert "99% of a core" in saturated
    assert "lower max_concurrency" in saturated


async def test_requests_that_leave_late_are_saturation() -> None:
    async with watching() as watch:
        await asyncio.sleep(0.02)
    saturated = watch.health([0.001] * 8 + [0.2] * 4, 0.5).saturated
    assert saturated is not None
    assert "requests left over 200 ms late" in saturated
    assert watch.health([0.001] * 8 + [0.2] * 4, 5.0).saturated is None

from __future__ import annotations

import asyncio

import pytest

from dsabench.errors import TrialFault
from dsabench.runtimes.faults import CheckedAfter

FAULT = TrialFault("not_gone", "something is still there", stage="stop")


async def found() -> TrialFault | None:
    return FAULT


async def nothing() -> TrialFault | None:
    return None


async def test_what_is_left_behind_is_raised() -> None:
    async with CheckedAfter(nothing):
        pass
    with pytest.raises(TrialFault, match="still there"):
        async with CheckedAfter(found):
            pass


@pytest.mark.parametrize("error", [ValueError("first"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_it_hides_no_other_error(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with CheckedAfter(found):
            raise error
    assert caught.value is error
    assert caught.value.__notes__ == [str(FAULT)]

"""What a failed test leaves running is ended, lest it holds cores and ports that every later test waits for."""

from __future__ import annotations

from collections.abc import Generator

import psutil
import pytest

_CLOCKS_DIFFER_S = 0.05


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Kill what the test itself has started and not its fixtures; keepers end the servers of whatever is killed."""
    report = yield
    if call.when == "call" and report.failed:
        begun_s = call.start + _CLOCKS_DIFFER_S
        left = [child for child in psutil.Process().children() if child.create_time() > begun_s]
        for child in left:
            child.kill()
        psutil.wait_procs(left, timeout=10)
    return report

"""The one reference server for tests that need just some server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.serving.serving import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with defaults and metrics. Its counters and its prefix cache know of other tests' requests."""
    with serving("--enable-metrics") as running:
        yield running

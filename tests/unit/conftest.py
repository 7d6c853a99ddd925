"""The one reference server for tests that need just some server, and a workshop of programs for those that start their own."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from unit.reference.server.serving import Server, serving
from unit.workshop import MARK, Workshop


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with defaults and metrics. Its counters and its prefix cache know of other tests' requests."""
    with serving("--enable-metrics") as running:
        yield running


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """A test fails when any process that it started, keepers included, outlives it."""
    shop = Workshop(tmp_path, uuid.uuid4().hex)
    monkeypatch.setenv(MARK, shop.family)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed dsabench leaves its lock files behind
    yield shop
    left = shop.alive()
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert not left, f"left behind: {left}"
    assert not [p for p in psutil.Process(os.getpid()).children() if p.status() == psutil.STATUS_ZOMBIE]

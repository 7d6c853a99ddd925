from __future__ import annotations

import pytest

from unit.serving.serving import serving


@pytest.fixture(scope="module")
def server():
    """One server with defaults, shared by a module."""
    with serving() as running:
        yield running

"""The unit test that comes with a pull request, where the checkout has a place for it."""

from __future__ import annotations

import re
from collections import Counter
from importlib import resources
from pathlib import Path

_PLACE = Path("test/registered/unit")
_NAME = "attention/test_dsa_tuned.py"
_SUITE = re.compile(r"""register_cpu_ci\([^)]*suite=["']([\w-]+)["']""")
_LOOKED_AT = 300


def upstream_test(repository: Path) -> tuple[Path, bytes] | None:
    """File and content, in the suite that most CPU tests of the repository are in; None where it has no such tests."""
    suite = suite_of(repository)
    if suite is None:
        return None
    text = resources.files("dsabench.emit.payload").joinpath("upstream_test.txt").read_text(encoding="utf-8")
    return repository / _PLACE / _NAME, text.replace("SUITE", suite).encode()


def suite_of(repository: Path) -> str | None:
    """The suite that most CPU tests of the repository are in; None where it has no such tests."""
    files = sorted((repository / _PLACE).glob("*/test_*.py"))[:_LOOKED_AT]
    suites = Counter(suite for file in files for suite in _SUITE.findall(file.read_text(errors="replace")))
    return suites.most_common(1)[0][0] if suites else None

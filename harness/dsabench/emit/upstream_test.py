"""The unit test that comes with a pull request, where the checkout has a place for it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_PLACE = Path("test/registered/unit")
_SUITE = re.compile(r"""register_cpu_ci\([^)]*suite=["']([\w-]+)["']""")
_LOOKED_AT = 300


def upstream_test(repository: Path, name: str, text: str) -> tuple[Path, bytes] | None:
    """File and content, in the suite that most CPU tests of the repository are in; None where it has no such tests.

    `name` is a path below its unit tests, and SUITE in the text is filled in.
    """
    files = sorted((repository / _PLACE).glob("*/test_*.py"))[:_LOOKED_AT]
    suites = Counter(suite for file in files for suite in _SUITE.findall(file.read_text(errors="replace")))
    if not suites:
        return None
    return repository / _PLACE / name, text.replace("SUITE", suites.most_common(1)[0][0]).encode()

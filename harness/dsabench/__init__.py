"""Measure, tune and prove serving settings of DeepSeek-Sparse-Attention models.

In Python, `dsabench.Study.from_config("configs/local.yaml").run()` measures a study and returns its result, and
`dsabench.load_results("results/h200").to_frame()` returns the measurements as a pandas DataFrame.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsabench.model.study_result import StudyResult as StudyResult
    from dsabench.results.frames import Results as Results
    from dsabench.results.frames import load_results as load_results
    from dsabench.study.session import StudyObserver as StudyObserver
    from dsabench.study.study import Study as Study

__version__ = "0.1.0"

_HOMES = {
    "Results": "dsabench.results.frames",
    "Study": "dsabench.study.study",
    "StudyObserver": "dsabench.study.session",
    "StudyResult": "dsabench.model.study_result",
    "load_results": "dsabench.results.frames",
}
"""Public names and their modules. They are imported at first use, so that `import dsabench` takes a few milliseconds.
"""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dsabench' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

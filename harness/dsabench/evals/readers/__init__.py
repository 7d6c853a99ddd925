"""Data file → questions. One reader a module; `READERS` names them."""

from __future__ import annotations

from dsabench.evals.readers.aime import read_aime
from dsabench.evals.readers.demo import make_demo
from dsabench.evals.readers.gpqa import read_gpqa
from dsabench.evals.readers.gsm8k import read_gsm8k
from dsabench.evals.readers.mmlu import read_mmlu
from dsabench.evals.readers.needle import make_needles
from dsabench.evals.readers.protocol import Reader
from dsabench.evals.readers.tasks import make_tasks
from dsabench.model.evals import ReaderName

READERS: dict[ReaderName, Reader] = {
    "gsm8k": read_gsm8k,
    "gpqa": read_gpqa,
    "aime": read_aime,
    "mmlu": read_mmlu,
    "needle": make_needles,
    "demo": make_demo,
    "tasks": make_tasks,
}

__all__ = ["READERS", "Reader"]

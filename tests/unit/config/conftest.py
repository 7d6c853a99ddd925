from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Protocol

import pytest

MINIMAL = """\
name: mini
runtime: {kind: reference, model: tiny}
workloads: [{name: w, dataset: random-ids, input_len: 8, output_len: 4, num_prompts: 2}]
objective: {metric: output_throughput_tok_s, direction: maximize}
"""


class Write(Protocol):
    def __call__(self, text: str, name: str = "config.yaml") -> Path: ...


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a YAML file and give its path."""

    def to_file(text: str, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return to_file

"""The tables of docs/launch.md say what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsabench.sglang.accepts import from_table
from dsabench.sglang.render import render
from dsabench.sglang.versions import parse_version

PAGE = (Path(__file__).parents[3] / "docs/launch.md").read_text()
COMPANIONS = {
    "cp_mode": {"prefill_cp": True},
    "dp_attention": {"dp_size": 8},
    "speculative_overlap": {"speculative_algorithm": "EAGLE"},
}
VALUES = {"prefill_backend": "flashmla_sparse", "cuda_graph_max_bs": 64, "mha_threshold_tokens": 4096}
ROWS = re.findall(r"^\| `([a-z_]+)(?:: (\w+))?` \|(.*)\|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("knob", "value", "cells"), ROWS, ids=lambda one: one if len(one) < 30 else "")
def test_the_spelling_of_each_version(knob: str, value: str, cells: str) -> None:
    versions = re.search(r"^\| knob \|(.*)\|$", PAGE, flags=re.MULTILINE)
    assert versions is not None
    plain = {"true": True, "false": False, "": VALUES.get(knob, True)}.get(value, value)
    for version, cell in zip(versions[1].split("|"), cells.split("|"), strict=True):
        accepted = from_table(parse_version(version.strip()))
        rendered = render({**COMPANIONS.get(knob, {}), knob: plain}, {}, accepted)
        said = " ".join([*rendered.words, *rendered.env])
        if cell.strip() == "none":
            assert [one.severity for one in rendered.remarks] == ["error"]
        else:
            assert cell.strip().strip("`") in said
            assert rendered.remarks == ()


def test_there_are_rows() -> None:
    assert len(ROWS) == 9

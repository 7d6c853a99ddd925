"""The settings that `tests/wheels/random_settings.py` draws, and what the rules advise for each."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from dsabench.model.knobs import KNOBS
from dsabench.sglang.accepts import from_table, known_versions
from dsabench.sglang.render import render
from dsabench.sglang.spellings import FOREIGN
from sglang_rule_cases import DEVICES

MANY = 60


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "wheels"))
    import draws as module

    yield module
    for name in ("draws", "command_lines"):
        sys.modules.pop(name, None)


def drawn(draws: Any, version: Any, seed: int = 0) -> list[Any]:
    return list(islice(draws.draws(Random(seed), from_table(version)), MANY))


def test_a_seed_says_which_settings_are_drawn(draws: Any) -> None:
    version = known_versions()[-1]
    assert drawn(draws, version) == drawn(draws, version)
    assert drawn(draws, version) != drawn(draws, version, seed=1)


def test_every_knob_of_the_catalogue_is_drawn(draws: Any) -> None:
    seen = {
        name
        for version in known_versions()
        for seed in range(5)
        for each in drawn(draws, version, seed)
        for name in each.knobs
    }
    assert seen >= KNOBS.keys() - {*FOREIGN, *draws.NOT_DRAWN, "model_overrides"}


@pytest.mark.parametrize("version", known_versions(), ids=str)
def test_the_version_can_say_every_draw(draws: Any, version: Any) -> None:
    for each in drawn(draws, version):
        remarks = render(each.knobs, each.env, from_table(version)).remarks
        assert not [remark for remark in remarks if remark.severity != "advisory"], str(each)


@pytest.mark.parametrize("hardware", ["h200", "b200", "mi300x"])
def test_most_settings_become_ones_that_the_rules_take(draws: Any, hardware: str) -> None:
    """Not all: a checkpoint may be made for other hardware, or HiSparse ask for a kernel that the GPU does not run."""
    device = DEVICES[hardware]
    taken = 0
    for version in known_versions():
        accepted = from_table(version)
        for each in drawn(draws, version):
            *_, last = each, *draws.mended(each, accepted, device, Random(0))
            taken += not draws.refusals(last, accepted, device)
    assert taken > 0.8 * MANY * len(known_versions())


def test_smaller_settings_have_one_thing_less(draws: Any) -> None:
    version = known_versions()[-1]
    for each in drawn(draws, version):
        for less in draws.smaller(each, from_table(version)):
            assert {*less.knobs, *less.env} <= {*each.knobs, *each.env}
            assert less != each

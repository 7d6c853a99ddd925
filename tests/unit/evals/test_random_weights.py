"""Answers of random weights are not compared with what somebody published."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.evals.conduct import Setting
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.journal import Journal
from factories import ENVIRONMENT

SERVED = RuntimeSpec(kind="external", model="m", base_url="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("runtime", "told", "random"),
    [
        (SERVED, {"load_format": "auto"}, False),
        (SERVED, {}, False),
        (SERVED, {"load_format": "dummy"}, True),
        (SERVED, {"reference": {"vocab_size": 256}}, True),
        (SERVED, {"reference": {"vocab_size": 256}, "load_format": "dummy"}, True),
        (SERVED, {"reference": {"vocab_size": 256}, "load_format": "safetensors"}, False),
        (RuntimeSpec(kind="reference", model="tiny"), {}, True),
        (RuntimeSpec(kind="reference", model="trained"), {"load_format": "safetensors"}, False),
        (RuntimeSpec(kind="sglang", model="m", knobs={"load_format": "dummy"}), {}, True),
    ],
)
def test_a_server_or_its_settings_say_so(tmp_path: Path, runtime: RuntimeSpec, told: dict, random: bool) -> None:
    setting = Setting(runtime, ENVIRONMENT, Journal(tmp_path), boot="b", study="s", resolved=told)
    assert setting.has_random_weights is random

from __future__ import annotations

import pytest

from dsabench.config.load import load_study
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import looks_secret
from dsabench.model.record import Trial
from dsabench.model.value import canonical_json

from .conftest import MINIMAL, Write


def test_a_spec_is_the_base_with_the_assignment_in_place(write: Write) -> None:
    text = MINIMAL.replace("tiny", "tiny, base: {dtype: float32, cpu_threads: 2}, env: {A: b}")
    config = load_study(write(text))
    spec = config.spec({"cpu_threads": 1, "context_length": 64})
    assert spec.knobs == {"dtype": "float32", "cpu_threads": 1, "context_length": 64}
    assert spec.env == {"A": "b"}
    assert config.default.knobs == {"dtype": "float32", "cpu_threads": 2}
    assert config.spec({"cpu_threads": 2}).id == config.default.id


def test_how_it_is_started_is_no_part_of_the_trial(write: Write) -> None:
    launch = "launch: {python: /opt/python, env: {HF_TOKEN: hunter2, CUDA_HOME: /opt/cuda}}"
    plain, started = (
        load_study(write(MINIMAL.replace("tiny", f"tiny{extra}"))) for extra in ("", f", {launch}")
    )  # fmt: skip
    trials = [Trial(runtime=config.default, workload=config.workloads[0]) for config in (plain, started)]
    assert trials[0].id == trials[1].id
    assert "hunter2" not in canonical_json(trials[1]) + repr(started)
    assert started.runtime.launch.env == {"HF_TOKEN": "hunter2", "CUDA_HOME": "/opt/cuda"}


def test_behaviour_in_launch_env_is_moved_to_what_is_recorded(write: Write) -> None:
    launch = "launch: {env: {SGLANG_A: '1', SGLANG_API_KEY: hunter2, PYTHONPATH: /x}}, env: {B: '2'}"
    config = load_study(write(MINIMAL.replace("tiny", f"tiny, {launch}")))
    assert config.runtime.launch.env == {"SGLANG_API_KEY": "hunter2", "PYTHONPATH": "/x"}
    assert config.default.env == config.runtime.env == {"B": "2", "SGLANG_A": "1"}


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hf_token", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "MY_SECRET_X", "PGPASSWORD", "GIT_CREDENTIALS",
     "TOKENS", "SGLANG_API_KEY", "SGLANG_SECRET"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "SGLANG_RESERVED_DECODE_TOKENS", "SGLANG_INIT_NEW_TOKEN_RATIO", "KEYBOARD", "PATH"],
)  # fmt: skip
def test_names_of_settings(name: str) -> None:
    assert not looks_secret(name)


def test_the_config_knows_the_sizes_of_the_reference_model() -> None:
    sizes = pytest.importorskip("dsabench.reference.sizes")
    assert set(runtime_kinds()["reference"].models or ()) == set(sizes.SIZES)

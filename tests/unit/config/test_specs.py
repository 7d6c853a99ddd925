from __future__ import annotations

import pytest

from dsabench.config.load import load_study
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import looks_secret
from dsabench.errors import ConfigError
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


SGLANG_ARGS = """
name: x
runtime:
  kind: sglang
  model: m
  base: {tp_size: 8, args: {enable_hierarchical_cache: true, cuda_graph_bs: [1, 2]}}
  topology: {roles: [{role: server, knobs: {args: {log_level: debug}}}]}
workloads: [{name: a, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1}]
sweeps:
  - axes: {args: {hicache_ratio: [2, 3]}}
    when: {args: {hicache_ratio: {args: {enable_hierarchical_cache: true}}}}
    forbid: [{tp_size: 4, args: {hicache_ratio: 3}}]
objective: {metric: ttft_ms.p90, direction: minimize}
"""


def test_arguments_of_the_runtime_stand_beside_the_knobs(write: Write) -> None:
    config = load_study(write(SGLANG_ARGS))
    base = {"tp_size": 8, "args.enable_hierarchical_cache": True, "args.cuda_graph_bs": "1 2"}
    assert config.default.knobs == base
    assert config.spec({"args.hicache_ratio": 3}).changes(config.default) == "args.hicache_ratio=3"
    assert [axis.name for axis in config.space.axes] == ["args.hicache_ratio"]
    assert config.space.when == {"args.hicache_ratio": {"args.enable_hierarchical_cache": True}}
    assert config.space.forbid == ({"tp_size": 4, "args.hicache_ratio": 3},)
    assert config.default.topology.roles[0].knobs == {"args.log_level": "debug"}
    dumped = config.runtime.model_dump()["base"]
    assert dumped == {"tp_size": 8, "args": {"enable_hierarchical_cache": True, "cuda_graph_bs": "1 2"}}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("cuda_graph_bs: [1, 2]", "a-b: 1", "6: runtime.base.args: a-b: write the flag without its dashes and with _"),
        ("cuda_graph_bs: [1, 2]", "api_key: x", "6: runtime.base.args: api_key looks like a secret"),
        ("cuda_graph_bs: [1, 2]", "x: null", "6: runtime.base.args.x: must be true, false, a number, text or a list"),
        ("hicache_ratio: [2, 3]", "hicache_ratio: [2, 2]", "10: sweeps[0].axes.args.hicache_ratio: the same value"),
        ("{enable_hierarchical_cache: true}}", "{other: 1}}", "11: sweeps[0].when.args.hicache_ratio.args.other: args.other is no"),
        ("tp_size: 8", "hicache_size: 60", "6: runtime.base.hicache_size: unknown knob 'hicache_size'; an argument of sglang stands below"),
        ("args: {log_level: debug}", "arg: {log_level: debug}", "7: runtime.topology.roles[0].knobs.arg: unknown key 'arg'; did you mean args?"),
    ],
)  # fmt: skip
def test_mistakes_in_arguments_have_their_line(write: Write, old: str, new: str, error: str) -> None:
    assert old in SGLANG_ARGS
    with pytest.raises(ConfigError) as raised:
        load_study(write(SGLANG_ARGS.replace(old, new)))
    assert error in str(raised.value)


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
    sizes = pytest.importorskip("dsabench.reference.engine.sizes")
    assert set(runtime_kinds()["reference"].models or ()) == set(sizes.SIZES)

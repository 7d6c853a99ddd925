"""First configs: each is a valid config, and takes hardware, GPUs, model and goal into account."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.config.load import load_study_text
from dsabench.errors import InputError
from dsabench.machine.environment import collect_hardware
from dsabench.model.environment import Gpu, Hardware
from dsabench.study.starter import FirstStudy, config_text, goal_named, hardware_here


def load(wanted: FirstStudy):
    return load_study_text(config_text(wanted, "dsabench init"), Path("first.yaml"))


@pytest.mark.parametrize("model", ["v3.2", "deepseek-ai/DeepSeek-V3.2-Exp", "glm-5", "glm-5.2"])
@pytest.mark.parametrize("hardware", ["h200", "h20", "h800", "b200", "mi300x", "mi355x"])
@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_every_machine_and_model_gives_a_config_that_loads(model: str, hardware: str, gpus: int) -> None:
    config = load(FirstStudy(model, hardware, gpus))
    assert (config.runtime.hardware, config.runtime.base["tp_size"]) == (hardware, gpus)
    axes = {axis.name for axis in config.space.axes}
    assert ("dp_size" in axes) == (gpus > 1)
    assert ("index_topk_pattern" in axes) == (model == "glm-5")
    assert config.name.endswith(f"{gpus}x{hardware}-max-throughput")


@pytest.mark.parametrize(("hardware", "like"), [("b300", "b200"), ("mi325x", "mi300x"), ("gfx950-288gib", "mi300x")])
def test_a_gpu_without_a_shipped_config_starts_from_one_of_its_kind(hardware: str, like: str) -> None:
    here, there = load(FirstStudy("v3.2", hardware, 8)), load(FirstStudy("v3.2", like, 8))
    assert (here.runtime.hardware, here.runtime.base, here.space) == (hardware, there.runtime.base, there.space)


def test_the_goal_decides_objective_and_load() -> None:
    throughput = load(FirstStudy("v3.2", "h200", 8, "max-throughput-under-slo", {"ttft_p90_ms": 3000.0}))
    assert [limit.metric for limit in throughput.objective.constraints] == ["ttft_ms.p90"]
    assert [load.max_concurrency for load in throughput.workloads] == [128, 16]
    latency = load(FirstStudy("v3.2", "h200", 8, "min-latency"))
    assert (latency.objective.metric, latency.objective.direction) == ("e2e_ms.p50", "minimize")
    assert [load.max_concurrency for load in latency.workloads] == [1, 1]
    own = load(FirstStudy("small", input_len=96, output_len=16))
    assert [(load.input_len, load.output_len) for load in own.workloads] == [(96, 16)]
    assert own.runtime.kind == "reference"


def test_a_checkpoint_brings_what_it_needs(tmp_path: Path) -> None:
    assert load(FirstStudy("v3.2-nvfp4", "b200", 4)).runtime.base["quantization"] == "modelopt_fp4"
    (tmp_path / "config.json").write_text('{"architectures": ["GlmMoeDsaForCausalLM"]}')
    config = load(FirstStudy(str(tmp_path), "h200", 8))
    assert config.runtime.model == str(tmp_path)
    assert "mha_threshold_tokens" not in config.runtime.base


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (FirstStudy("v3.2"), "no known GPU is in this machine"),
        (FirstStudy("v3.2", "h300", 8), "h300: unknown hardware"),
        (FirstStudy("v3.2", "npu", 8), "no config for it is shipped"),
        (FirstStudy("glm-5", "rtx-pro-6000", 8), "no config for it is shipped"),
        (FirstStudy("v3.2", "sm_89-48gib", 8), "no config for it is shipped"),
        (FirstStudy("v3.2", "h200", 16), "several machines"),
        (FirstStudy("v3.2-nvfp4", "h200", 4), "nvfp4 weights, which run on b200"),
        (FirstStudy("meta-llama/Llama-3", "h200", 8), "neither a known model"),
    ],
)
def test_what_cannot_be_started_is_one_line(wanted: FirstStudy, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        config_text(wanted, "dsabench init")
    assert "\n" not in str(caught.value)


def test_short_names_of_goals() -> None:
    assert goal_named("throughput", {}) == "max-throughput"
    assert goal_named("throughput", {"ttft_p90_ms": 3.0}) == "max-throughput-under-slo"
    assert goal_named("latency", {}) == "min-latency"
    with pytest.raises(InputError, match="--goal best: no such goal"):
        goal_named("best", {})


async def test_the_gpus_of_this_machine_are_recognised() -> None:
    found = await collect_hardware()
    gpus = tuple(Gpu(name="NVIDIA H200 NVL", memory_mib=143771) for _ in range(4))
    assert hardware_here(found.model_copy(update={"gpus": gpus})) == ("h200", 4)
    assert hardware_here(Hardware(cpu="x", cpu_cores=1, memory_mib=1)) == (None, 0)

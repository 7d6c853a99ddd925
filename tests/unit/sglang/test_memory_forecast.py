"""The forecast of a rank's memory against what sglang 0.5.16 took on an H200."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dsabench.config.load import load_study
from dsabench.errors import TrialFault
from dsabench.model.hardware import HARDWARE
from dsabench.model.record import Measured
from dsabench.model.runtime import RuntimeSpec, SettingCheck
from dsabench.model.topology import SINGLE
from dsabench.model.value import KnobValue
from dsabench.results.journal import read_journal
from dsabench.runtimes.command import launch_of
from dsabench.sglang.diagnose import refine
from dsabench.sglang.memory_forecast import PrefillStep, forecast_memory
from dsabench.sglang.models import WIDTHS
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.runtime import SglangRuntime
from dsabench.sglang.versions import V16, V17, Version

ROOT = Path(__file__).parents[3]
RANK = load_study(ROOT / "configs" / "h200-rank.yaml")
FP8 = {"kv_cache_dtype": "fp8_e4m3", "prefill_backend": "flashmla_kv", "decode_backend": "flashmla_kv"}
DIED = {
    **FP8,
    "chunked_prefill_size": 16384,
    "mem_fraction_static": 0.88,
    "max_running_requests": 64,
    "cuda_graph_max_bs": 16,
}
"""The setting of tests/unit/sglang/logs/prefill_h200_0.5.16.txt."""
GIB = 2**30


def setting(version: Version = V16, hardware: str = "h200", **knobs: KnobValue) -> Setting:
    spec = RANK.default.model_copy(update={"knobs": {**RANK.default.knobs, **knobs}})
    return resolve(spec, SINGLE.roles[0], version, HARDWARE[hardware])


def check(**knobs: KnobValue) -> SettingCheck:
    spec: RuntimeSpec = RANK.default.model_copy(update={"knobs": {**RANK.default.knobs, **knobs}})
    return SglangRuntime(launch_of(RANK.runtime)).check([spec], "0.5.16")[0]


def free_at_boot(resolved: Mapping[str, object]) -> float:
    """GiB left of what was free before the weights, behind the graphs: by the log that the record keeps."""
    log = resolved["dsabench"]["log"]  # type: ignore[index]
    return 139.0 - log["weights_gb"] - log["kv_gb"] - log["graphs_gb"]  # type: ignore[index,no-any-return]


def test_a_step_takes_what_it_took_on_a_gpu() -> None:
    """Two lengths within 0.4 GiB; at 8,192 PyTorch's allocator keeps up to a third more, which is what a setting must spare."""
    seen = 0
    for record in read_journal(ROOT / "results" / "h200" / "memory" / "journal.jsonl").records:
        tokens, outcome = record.trial.workload.input_len, record.outcome
        assert isinstance(outcome, Measured)
        free = outcome.metrics.get("gpu.memory_free_mib.min")
        if free is None or tokens is None or not 2048 < tokens <= 16384:
            continue
        took = free_at_boot(record.resolved) - free.value / 1024
        kernel = str(record.trial.runtime.knobs["prefill_backend"])
        step = PrefillStep(WIDTHS["v3.2"], 128, kernel, tokens, 0.2 * 0.12 * 141 * GIB)
        told = (step.size + step.logits) / GIB
        seen += 1
        if tokens == 8192:
            assert told - 0.1 < took < told * 4 / 3, (kernel, tokens)
        else:
            assert took == pytest.approx(told, abs=0.4), (kernel, tokens)
    assert seen == 12


def test_what_a_whole_rank_leaves_is_what_it_left() -> None:
    """Of the logs of two boots: pool tokens, and GiB available behind the graphs."""
    for knobs, tokens, left in (({}, 141_312, 28.84), (DIED, 636_928, 13.35)):
        told = forecast_memory(setting(**knobs))
        assert told is not None
        assert told.weights_gib == pytest.approx(96.85, rel=0.01)
        assert told.kv_tokens == pytest.approx(tokens, rel=0.03)
        assert told.left_gib + told.step_gib == pytest.approx(left, abs=0.3)


def test_the_pool_of_packed_rows_is_larger_than_planned_up_to_0_5_16() -> None:
    """0.5.16 plans 576 bytes for a row of 656, so that a step has less."""
    before, after = (forecast_memory(setting(version, **DIED)) for version in (V16, V17))
    assert before is not None
    assert after is not None
    assert before.kv_pool_gib / after.kv_pool_gib == pytest.approx((656 + 132) / (576 + 132), rel=0.001)
    assert after.left_gib - before.left_gib == pytest.approx(before.kv_pool_gib - after.kv_pool_gib, abs=0.01)


def test_what_died_is_marked_and_what_cannot_live_is_refused() -> None:
    died = check(**DIED)
    assert died.memory is not None
    assert died.memory.verdict == "may run out"
    assert died.refusal is None
    (note,) = (one for one in died.notes if one.rule == "MM02")
    assert "a prefill step of 16,384 tokens takes" in note.line
    assert "flashmla_kv's accumulators in fp32" in note.line
    assert note.line.endswith("it may run out of memory under load; chunked_prefill_size: 8192 fits")
    refused = check(**{**DIED, "mem_fraction_static": 0.92}).refusal
    assert refused is not None
    assert refused.rule == "MM02"
    assert "it runs out of memory under load; chunked_prefill_size: 4096 fits" in refused.line
    assert check().memory is not None
    assert not [one for one in check().notes if one.rule == "MM02"]


def test_the_chunk_that_it_names_fits() -> None:
    died = forecast_memory(setting(**DIED))
    assert died is not None
    assert died.fitting_chunk == 8192
    told = forecast_memory(setting(**{**DIED, "chunked_prefill_size": died.fitting_chunk}))
    assert told is not None
    assert told.verdict == "fits"


def test_groups_of_the_attention_share_the_chunk_and_the_requests() -> None:
    alone = forecast_memory(setting())
    node = {"tp_size": 8, "dp_size": 8, "dp_attention": True, "ep_size": 8}
    spec = RANK.default.model_copy(
        update={
            "model": "deepseek-ai/DeepSeek-V3.2",
            "knobs": {**RANK.default.knobs, **node, "chunked_prefill_size": 8192, "max_running_requests": 16384},
        }
    )
    whole = forecast_memory(resolve(spec, SINGLE.roles[0], V16, HARDWARE["h200"]))
    assert alone is not None
    assert whole is not None
    assert (whole.step_tokens, whole.step_gib, whole.beside_gib) == (1024, alone.step_gib, alone.beside_gib)
    assert whole.weights_gib == pytest.approx(alone.weights_gib, rel=0.01)


@pytest.mark.parametrize(
    "knobs",
    [
        {"mem_fraction_static": "auto"},
        {"speculative_algorithm": "EAGLE", "simulated_accept_length": 2.5},
        {"hisparse": True},
        {"prefill_backend": "tilelang"},
        {"chunked_prefill_size": -1},
        {"pp_size": 2},
    ],
)
def test_what_was_not_read_is_not_told(knobs: dict[str, KnobValue]) -> None:
    assert forecast_memory(setting(**knobs)) is None


def test_other_gpus_are_not_told() -> None:
    assert forecast_memory(setting(hardware="b200")) is None


def test_a_prefill_out_of_memory_names_the_allocation_and_what_fits() -> None:
    log = (Path(__file__).parent / "logs" / "prefill_h200_0.5.16.txt").read_text()
    fault = refine(
        TrialFault("exited", "exited with code 1", stage="load"), log, {}, fits="chunked_prefill_size: 8192 should fit"
    )
    assert (fault.kind, fault.stage) == ("prefill_out_of_memory", "load")
    assert fault.message == (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.99 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
        "1.48 GiB is free. In flash_mla_with_kvcache of a prefill step; chunked_prefill_size: 8192 should fit"
    )


def test_the_plan_lists_what_every_setting_takes(tmp_path: Path) -> None:
    words = ["sweep", str(ROOT / "configs" / "h200-rank.yaml"), "--dry-run", "--json", "--results", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "dsabench", *words], capture_output=True, text=True, check=True)
    plan = json.loads(done.stdout)
    assert {"axes", "baseline_command", "objective"} <= plan.keys()
    assert len(plan["memory"]) == plan["refused"]["asked"]
    verdicts = {one["verdict"] for one in plan["memory"]}
    assert verdicts == {"fits", "may run out", "runs out"}
    assert sum(one["verdict"] == "runs out" for one in plan["memory"]) == plan["refused"]["by_rule"]["MM02"]

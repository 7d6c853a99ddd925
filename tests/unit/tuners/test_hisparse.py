from __future__ import annotations

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_sweep
from dsabench.errors import InputError
from dsabench.runtimes.sglang.widths import WIDTHS
from dsabench.tuners.hisparse import free_host_bytes, plan_hisparse, rank_of
from dsabench.tuners.hisparse_memory import GIB, KV_BYTES, Demand, Rank

RANK = Rank(WIDTHS["v3.2"], 1, 8, 141, 0.85)


def test_the_pool_is_what_the_weights_leave():
    tokens = RANK.pool_tokens(KV_BYTES["fp8_e4m3"], 2)
    left = 141 * GIB * 0.85 - RANK.weight_bytes
    assert tokens == int(left) // (61 * (656 + 2 * 132)) // 64 * 64
    assert 90 * GIB < RANK.weight_bytes < 100 * GIB, "an eighth of 654e9 experts, and the rest"
    whole = Rank(WIDTHS["v3.2"], 1, 1, 141, 0.85)
    assert 660e9 < whole.weight_bytes < 690e9, "671e9 parameters"
    assert whole.pool_tokens(656, 2) == 0


def test_live_requests_and_host_memory():
    demand = Demand(6144, 10, 1152, 400_000, 61)
    assert demand.live_requests == 400_000 // 6208
    assert demand.host_bytes == 4_000_000 * 1152 * 61
    assert "= 64 requests" in demand.line()
    assert demand.held_requests is None
    assert demand.why_not(8192, 1 << 60, 1) == "the buffer is smaller than index_topk=8192"
    assert "GiB are free" in (demand.why_not(2048, 100 * GIB, 1) or "")
    assert demand.why_not(2048, 1 << 60, 100) == "64 requests fit, the load keeps 100 in flight"
    assert demand.why_not(2048, 1 << 60, 64) is None


def test_the_shipped_study_pins_the_pool_and_leaves_out_what_does_not_fit():
    config = load_sweep("h200-hisparse")
    plan = plan_hisparse(config, rank_of(config, gpus=8), 4 * GIB)
    pool = plan.config.runtime.base["max_total_tokens"]
    assert pool == RANK.pool_tokens(KV_BYTES["bfloat16"], 8)
    left_out = [line for line in plan.arithmetic if "left out" in line]
    assert len(plan.config.space.forbid) == len(config.space.forbid) + len(left_out)
    assert any("bfloat16, buffer 6144, ratio 8" in line for line in left_out)


def test_the_arithmetic_gives_the_requests_that_servers_ran_at_once():
    """results/h200/hisparse: decode batches of 6 requests with HiSparse off, of 12 at ratio 2 and of all 16 from 4 on."""
    config = load_sweep("h200-hisparse")
    lines = plan_hisparse(config, rank_of(config, gpus=8), 60 * GIB).arithmetic
    assert "HiSparse off: 202,368 // 33,280 = 6 requests of 33,280 tokens" in lines
    assert (
        "bfloat16, were each setting's pool its own: off 348,032 tokens, 10 requests; "
        "ratio 2 315,584, 18; ratio 4 265,984, 31; ratio 8 202,368, 48" in lines
    ), "the baselines of that study had less room than they have of their own"
    assert any(line.startswith("fp8_e4m3, were each") and "off 567,104 tokens, 17 requests" in line for line in lines)
    held = {ratio: {line.rsplit(", ", 1)[1] for line in lines if f"ratio {ratio}:" in line} for ratio in (2, 4)}
    assert held == {2: {"12 requests of 33,280 tokens"}, 4: {"24 requests of 33,280 tokens"}}


def test_nothing_that_fits_is_refused_with_the_arithmetic():
    config = load_sweep("h200-hisparse")
    with pytest.raises(InputError, match="no setting of HiSparse fits") as caught:
        plan_hisparse(config, rank_of(config, gpus=8), GIB)
    assert "GiB of weights" in str(caught.value)
    assert "× 8 layers =" in str(caught.value)


def test_a_missing_baseline_is_named():
    config = load_sweep("h200-hisparse").model_copy(update={"first": ()})
    with pytest.raises(InputError, match=r"leave out the baseline \{hisparse: False, kv_cache_dtype: bfloat16\}"):
        plan_hisparse(config, rank_of(config, gpus=8), 1 << 40)


def test_another_study_is_refused(capsys):
    assert run(["tune", "hisparse", "h200-slice", "--dry-run"]) == 2
    assert "needs the axis hisparse" in capsys.readouterr().err


def test_free_memory_is_read():
    assert free_host_bytes("MemTotal: 5 kB\nMemAvailable:   1024 kB\n") == 1 << 20
    with pytest.raises(InputError, match="--host-memory-gib"):
        free_host_bytes("")

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric
from dsabench.model.space import legal
from dsabench.reference.engine.sizes import SIZES
from dsabench.runtimes.plan import role_specs
from dsabench.sglang.memory_forecast import GIB
from dsabench.sglang.models import WIDTHS
from dsabench.study.next_boot import before_the_proposer
from dsabench.tuners.hisparse import free_host_bytes, hit_rates, plan_hisparse, pool_of, ranks_per_host
from dsabench.tuners.hisparse_memory import KV_BYTES, Demand, Rank
from dsakernels.kv_layout import PackedLayout
from factories import make_record

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


def test_every_setting_has_the_pool_of_a_full_rank_under_it():
    config = load_study("h200-hisparse")
    plan = plan_hisparse(config, pool_of(config, gpus=8), 60 * GIB)
    fits = list(legal(plan.config.space, plan.config.runtime.base))
    pools = {
        (spec.knobs["kv_cache_dtype"], spec.knobs.get("hisparse_host_to_device_ratio", 1)): spec.knobs[
            "max_total_tokens"
        ]
        for spec in map(plan.config.spec, fits)
    }
    assert pools == {
        (dtype, ratio): RANK.pool_tokens(KV_BYTES[dtype], ratio)
        for dtype in ("bfloat16", "fp8_e4m3")
        for ratio in (1, 2, 4, 8)
    }
    assert plan.config.default.knobs["max_total_tokens"] == pools["fp8_e4m3", 1]
    assert len(plan.config.space.forbid) == len(config.space.forbid)


def test_ranks_of_a_machine_share_its_memory():
    assert ranks_per_host(load_study("h200-hisparse-rank")) == 1
    assert ranks_per_host(load_study("h200-tp8")) == 8
    assert ranks_per_host(load_study("h800-2node")) == 8


def test_what_does_not_fit_is_left_out():
    config = load_study("h200-hisparse-rank")
    plan = plan_hisparse(config, pool_of(config, gpus=8), 11 * GIB)
    left_out = [line for line in plan.arithmetic if "left out" in line]
    assert len(plan.config.space.forbid) == len(config.space.forbid) + len(left_out)
    assert any("bfloat16, buffer 4096, ratio 8" in line and "13.9 GiB of host memory" in line for line in left_out)
    assert any("fp8_e4m3, buffer 8192, ratio 8" in line and "31 requests fit" in line for line in left_out)
    assert any(
        line.startswith("fp8_e4m3, HiSparse off: ") and "= 16 requests of 34,816" in line for line in plan.arithmetic
    )


def test_the_search_begins_with_the_buffers_under_which_most_requests_decode():
    config = load_study("h200-hisparse-rank")
    plan = plan_hisparse(config, pool_of(config, gpus=8), 60 * GIB)
    first, second = plan.config.space.enqueued
    assert (first["kv_cache_dtype"], second["kv_cache_dtype"]) == ("fp8_e4m3", "bfloat16")
    for one in (first, second):
        ratio, buffer = one["hisparse_host_to_device_ratio"], one["hisparse_device_buffer_size"]
        kv = KV_BYTES[one["kv_cache_dtype"]]
        chosen = Demand(buffer, ratio, kv, RANK.pool_tokens(kv, ratio), 8, 34_816)
        fewer = [
            Demand(buffer, r, kv, RANK.pool_tokens(kv, r), 8, 34_816).held_requests for r in (2, 4, 5) if r < ratio
        ]
        assert all(held < min(chosen.held_requests, 32) for held in fewer)
    # With the base's backends, or the first ones that read the cache.
    knobs = [spec.knobs for spec in before_the_proposer(plan.config)[-2:]]
    assert [one["decode_backend"] for one in knobs] == ["flashmla_kv", "flashmla_sparse"]
    assert all(first.items() <= one.items() for first, one in zip((first, second), knobs, strict=True))


def test_in_one_pool_the_arithmetic_gives_the_requests_that_servers_ran_at_once():
    """results/h200/hisparse: decode batches of 6 requests with HiSparse off, of 12 at ratio 2 and of all 16 from 4 on."""
    config = load_study("h200-hisparse")
    plan = plan_hisparse(config, pool_of(config, gpus=8), 60 * GIB, same_pool=True)
    fits = legal(plan.config.space, plan.config.runtime.base)
    assert {plan.config.spec(one).knobs["max_total_tokens"] for one in fits} == {202_368}
    assert 202_368 // 33_280 == 6
    lines = plan.arithmetic
    held = {ratio: {line.rsplit(", ", 1)[1] for line in lines if f"ratio {ratio}: 202," in line} for ratio in (2, 4)}
    assert held == {2: {"12 requests of 33,280 tokens"}, 4: {"24 requests of 33,280 tokens"}}


def test_what_was_measured_in_one_pool_is_concluded_so(tmp_path, capsys):
    folder = tmp_path / "study"
    shutil.copytree("results/h200/hisparse", folder)
    words = ["tune", "hisparse", "configs/h200-hisparse.yaml", "--host-memory-gib", "60", "--conclude", "--json"]
    places = ["--results", str(folder), "--out", str(tmp_path / "tables")]
    assert run([*words, "--same-pool", *places]) == 0
    said = json.loads(capsys.readouterr().out)
    (written,) = (tmp_path / "tables").iterdir()
    assert said["table"] == str(written)
    assert written.read_bytes() == Path("results/h200/hisparse/tables", written.name).read_bytes()
    assert run([*words, *places]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["table"] is None
    assert "the default was not measured" in said["standing"], "no record is of a default with a pool of its own"


def test_what_was_measured_with_as_much_memory_is_concluded_again(tmp_path, capsys):
    folder = tmp_path / "study"
    shutil.copytree("results/h200/hisparse-rank", folder)
    words = ["tune", "hisparse", "h200-hisparse-rank", "--host-memory-gib", "60", "--conclude", "--json"]
    assert run([*words, "--results", str(folder), "--out", str(tmp_path / "tables")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [len(said["verdicts"]), *(len(one["verdicts"]) for one in said["rivals"])] == [2, 2, 2]
    (written,) = (tmp_path / "tables").iterdir()
    assert written.read_bytes() == Path("results/h200/hisparse-rank/tables", written.name).read_bytes()


def test_nothing_that_fits_is_refused_with_the_arithmetic():
    config = load_study("h200-hisparse")
    with pytest.raises(InputError, match="no setting of HiSparse fits") as caught:
        plan_hisparse(config, pool_of(config, gpus=8), GIB)
    assert "GiB of weights" in str(caught.value)
    assert "× 8 layers =" in str(caught.value)


def test_the_reference_runtimes_pool_has_as_many_bytes_under_every_setting():
    config = load_study("local-hisparse")
    size = SIZES["trained"]
    layout = PackedLayout(size.latent, size.rope)
    assert size.packed_row_bytes == layout.row_bytes
    plan = plan_hisparse(config, pool_of(config, gpus=8), 1 << 40)
    key, rows = 2 * size.index_dim, {"bfloat16": 2 * size.row, "fp8_e4m3": layout.row_bytes}
    whole = 6144 * (rows["bfloat16"] + key)
    for assignment in legal(plan.config.space, plan.config.runtime.base):
        knobs = plan.config.spec(assignment).knobs
        taken = rows[knobs["kv_cache_dtype"]] + key * knobs.get("hisparse_host_to_device_ratio", 1)
        assert 0 <= whole - knobs["max_total_tokens"] * taken < 64 * taken
    assert plan.config.default.knobs["max_total_tokens"] == 6144
    bare = config.model_copy(update={"runtime": config.runtime.model_copy(update={"base": {"hisparse": False}})})
    with pytest.raises(InputError, match="max_total_tokens: tune hisparse needs it"):
        pool_of(bare, gpus=8)


def test_hit_rates_stand_beside_what_the_largest_buffer_foresees(tmp_path):
    config = load_study("local-hisparse")
    (workload,) = config.workloads

    def record(buffer, rate, number, **foreseen):
        setting = {"hisparse": True, "hisparse_device_buffer_size": buffer, "hisparse_host_to_device_ratio": 2}
        rates = {"hot_buffer_hit_rate": rate} | {f"hot_buffer_hit_rate.{name}": one for name, one in foreseen.items()}
        outcome = Measured(metrics={name: Metric(value=one, n=9) for name, one in rates.items()})
        return make_record(spec=config.spec(setting), workload=workload, occasion=number, outcome=outcome)

    records = [
        record(256, 0.9, 0, of_64=0.5, of_128=0.7, of_256=0.9), record(64, 0.4, 0), record(64, 0.6, 1),
        record(256, 0.92, 1, of_64=0.52, of_128=0.7, of_256=0.92), make_record(workload=workload),
    ]  # fmt: skip
    assert [
        (one.device_buffer_size, one.measured, one.boots, one.foreseen, one.foreseen_from) for one in hit_rates(records)
    ] == [
        (64, pytest.approx(0.5), 2, pytest.approx(0.51), 256),
        (256, pytest.approx(0.91), 2, None, 256),
    ]


def test_a_missing_baseline_is_named():
    config = load_study("h200-hisparse").model_copy(update={"first": ()})
    with pytest.raises(InputError, match=r"leave out the baseline \{hisparse: False, kv_cache_dtype: bfloat16\}"):
        plan_hisparse(config, pool_of(config, gpus=8), 1 << 40)


def test_another_study_is_refused(capsys):
    assert run(["tune", "hisparse", "h200-slice", "--dry-run"]) == 2
    assert "needs the axis hisparse" in capsys.readouterr().err


def test_free_memory_is_read():
    assert free_host_bytes("MemTotal: 5 kB\nMemAvailable:   1024 kB\n") == 1 << 20
    with pytest.raises(InputError, match="--host-memory-gib"):
        free_host_bytes("")


def test_on_the_decode_servers_of_a_pair_it_is_their_arithmetic():
    config = load_study("h200-hisparse-pd")
    plan = plan_hisparse(config, pool_of(config, gpus=8), 60 * GIB)
    space = plan.config.space
    # 96 requests on 8 ranks of DP attention; the host's memory keeps out what a full rank of 61 layers would take.
    assert {setting["decode.hisparse_host_to_device_ratio"] for setting in space.forbid[4:]} == {4, 5, 8}
    assert all(setting["decode.hisparse"] is True for setting in space.forbid[4:])
    first = {spec.knobs["kv_cache_dtype"]: spec for spec in before_the_proposer(plan.config)[-2:]}
    fp8, bf16 = first["fp8_e4m3"], first["bfloat16"]
    assert bf16.knobs["decode_backend"] == "flashmla_sparse"
    assert plan.config.default.knobs["decode.max_total_tokens"] == RANK.pool_tokens(KV_BYTES["fp8_e4m3"], 1)
    prefill, decode = (own for _, own in role_specs(fp8))
    assert (decode.knobs["hisparse"], decode.knobs["hisparse_host_to_device_ratio"]) == (True, 2)
    assert decode.knobs["max_total_tokens"] == RANK.pool_tokens(KV_BYTES["fp8_e4m3"], 2)
    assert not {"hisparse", "max_total_tokens"} & set(prefill.knobs)
    assert ranks_per_host(config) == 8


def test_axes_of_two_roles_are_refused(tmp_path):
    text = Path("configs/h200-hisparse-pd.yaml").read_text()
    study = yaml.safe_load(text)
    study["sweeps"][0]["axes"]["prefill"] = {"chunked_prefill_size": [4096, 8192]}
    (tmp_path / "pair.yaml").write_text(yaml.safe_dump(study))
    config = load_study(tmp_path / "pair.yaml")
    with pytest.raises(InputError, match="axes of one role, here: decode, prefill"):
        plan_hisparse(config, pool_of(load_study("h200-hisparse-pd"), gpus=8), 60 * GIB)

"""Every config that ships loads, and every setting that its sweep could try is legal for the version it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.config.load import find_mistakes, load_study
from dsabench.model.space import count, legal
from dsabench.runtimes.command import launch_of
from dsabench.runtimes.plan import gpus_of
from dsabench.sglang.runtime import SglangRuntime
from dsabench.study.next_boot import listed

ROOT = Path(__file__).parents[3]
PREDICT = sorted(
    file.relative_to(ROOT / "configs").with_suffix("").as_posix()
    for file in (ROOT / "configs").glob("h200-x*-predict/*.yaml")
)
CONFIGS = sorted(file.stem for file in (ROOT / "configs").glob("*.yaml")) + PREDICT
GPUS = dict.fromkeys(PREDICT, 1) | {
    "b200-nvfp4": 4,
    "h200-landscape": 1,
    "h200-autotune": 1,
    "h200-slice": 1,
    "h200-auto": 1,
    "h200-hisparse": 1,
    "h200-hisparse-pd": 16,
    "h200-pd": 16,
    "h200-hisparse-rank": 1,
    "h200-hisparse-table": 1,
    "h200-hisparse-turns": 1,
    "h200-memory": 1,
    "h200-rank": 1,
    "h200-rank-auto": 1,
    "h200-rank-loads": 1,
    "h200-rank-mtp": 1,
    "h200-small-steps": 1,
    "h200-threshold": 1,
    "h200-x2-slice": 2,
    "h200-x4-slice": 4,
    "h20-2node": 16,
    "h800-2node": 16,
}
SGLANG = [name for name in CONFIGS if not name.startswith("local")]


@pytest.mark.parametrize("name", CONFIGS)
def test_it_loads(name: str) -> None:
    assert find_mistakes(str(ROOT / "configs" / f"{name}.yaml")) == ()


@pytest.mark.parametrize("file", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda file: file.stem)
def test_each_sweep_stands_by_itself(file: Path) -> None:
    assert find_mistakes(str(file)) == ()


@pytest.mark.parametrize("name", SGLANG)
def test_all_that_it_may_try_is_legal(name: str) -> None:
    config = load_study(ROOT / "configs" / f"{name}.yaml")
    runtime = SglangRuntime(launch_of(config.runtime))
    base = config.default.knobs
    assert count(config.space, base) <= 5000
    points = list(legal(config.space, base))
    checks = runtime.check([config.spec(point) for point in points], config.runtime.version)
    refused = [
        (dict(point), check.refusal.line)
        for point, check in zip(points, checks, strict=True)
        if check.refusal is not None
    ]
    if name == "h200-slice":  # the one that is there to be refused
        ((assignment, reason),) = refused
        assert (assignment["kv_cache_dtype"], assignment["prefill_backend"]) == ("bfloat16", "flashmla_kv")
        assert reason.startswith("SL11")
    elif name == "h200-rank":  # large chunks beside large pools, which the search is not to try
        assert refused
        assert {reason.partition(":")[0] for _, reason in refused} == {"MM02"}
    elif name == "h200-rank-mtp":  # `tune mtp` pins the accept length, which random weights do not have
        assert {reason.partition(":")[0] for _, reason in refused} == {"SIM01"}
    else:
        assert refused == []
    assert gpus_of(config.default) == GPUS.get(name, 8)


def test_what_a_config_lists_first_is_in_its_space() -> None:
    for name in SGLANG:
        config = load_study(ROOT / "configs" / f"{name}.yaml")
        possible = {config.spec(assignment).id for assignment in legal(config.space, config.default.knobs)}
        assert {spec.id for spec in listed(config)} <= possible
        assert len(listed(config)) == len(config.first)


def test_the_slice_fails_once_for_want_of_memory_and_otherwise_has_the_same() -> None:
    config = load_study(ROOT / "configs" / "h200-slice.yaml")
    small = [a for a in legal(config.space, config.default.knobs) if a["mem_fraction_static"] != 0.8]
    assert len(small) == 1

"""Arguments under sglang's own names: `args.NAME`."""

from __future__ import annotations

import pytest

from dsabench.config.launch_args import named_args, with_args
from dsabench.config.load import load_launch
from dsabench.errors import InputError
from dsabench.model.value import KnobValue
from dsabench.sglang.accepts import from_table
from dsabench.sglang.readback import differences
from dsabench.sglang.render import Rendered, render
from dsabench.sglang.versions import parse_version


def at(version: str, knobs: dict[str, KnobValue]) -> Rendered:
    return render(knobs, {}, from_table(parse_version(version)))


@pytest.mark.parametrize(
    ("version", "args", "words"),
    [
        ("0.5.16", {"hicache_ratio": 2.0, "enable_hierarchical_cache": True}, "--enable-hierarchical-cache --hicache-ratio 2"),
        ("0.5.16", {"cuda_graph_bs": "1 2 4"}, "--cuda-graph-bs 1 2 4"),
        ("0.5.23", {"fp8_gemm_runner_backend": "cutlass"}, "--fp8-gemm-backend cutlass"),
        ("0.5.23", {"enable_fused_qk_norm_rope": False}, "--no-enable-fused-qk-norm-rope"),
        ("0.5.23", {"enable_dp_lm_head": False}, ""),
        ("0.5.16", {"cuda_graph_backend_prefill": "full"}, "--cuda-graph-backend-prefill full"),
        ("0.5.16", {"log_level": "-- host"}, "--log-level=-- host"),
    ],
)  # fmt: skip
def test_words(version: str, args: dict[str, KnobValue], words: str) -> None:
    rendered = at(version, {f"args.{name}": value for name, value in args.items()})
    assert (" ".join(rendered.words), rendered.remarks) == (words, ())


@pytest.mark.parametrize(
    ("version", "name", "value", "line"),
    [
        ("0.5.16", "hicache_rato", 2, "VS01: args.hicache_rato: sglang 0.5.16 has no --hicache-rato; did you mean hicache_ratio?"),
        ("0.5.16", "hicache_io_backend", "pigeon", "FL04: args.hicache_io_backend: sglang 0.5.16 does not take pigeon for"),
        ("0.5.16", "enable_dp_lm_head", 1, "FL04: args.enable_dp_lm_head: --enable-dp-lm-head is a switch; it takes true or false"),
        ("0.5.16", "tensor_parallel_size", 8, "VS08: args.tensor_parallel_size: is the knob tp_size; write tp_size beside"),
        ("0.5.16", "dp_size", 8, "VS08: args.dp_size: is the knob dp_size"),
        ("0.5.16", "port", 1, "VS08: args.port: dsabench sets it"),
    ],
)  # fmt: skip
def test_what_a_version_does_not_take(version: str, name: str, value: KnobValue, line: str) -> None:
    rendered = at(version, {f"args.{name}": value})
    assert rendered.words == ()
    assert [str(remark)[: len(line)] for remark in rendered.remarks] == [line]


def test_a_knob_and_an_argument_must_not_set_the_same() -> None:
    rendered = at("0.5.16", {"cuda_graph": False, "args.cuda_graph_backend_prefill": "full"})
    assert [remark.rule for remark in rendered.remarks] == ["VS06"]


@pytest.mark.parametrize(
    ("asked", "runs", "line"),
    [
        (("hicache_ratio", 2), {"hicache_ratio": 2.0}, None),
        (("hicache_ratio", 2), {"hicache_ratio": 3.0}, "args.hicache_ratio: asked 2, runs with 3.0"),
        (("cuda_graph_bs_decode", "1 2"), {"cuda_graph_bs_decode": [1, 2]}, None),
        (("cuda_graph_bs_decode", "1 2"), {"cuda_graph_bs_decode": [1]}, "args.cuda_graph_bs_decode: asked 1 2, runs with [1]"),
        (("deepep_config", "{}"), {"deepep_config": {"a": 1}}, None),
        (("no_such_argument", 1), {}, None),
    ],
)  # fmt: skip
def test_read_back(asked: tuple[str, KnobValue], runs: dict[str, object], line: str | None) -> None:
    found = differences({f"args.{asked[0]}": asked[1]}, runs, {}, from_table(parse_version("0.5.23")))
    assert list(found.values()) == ([] if line is None else [line])


def test_on_the_command_line() -> None:
    config = with_args(load_launch("recipes/pd"), ("hicache-ratio=1.5", "--enable-dp-lm-head", "log_level=debug"))
    added = {name: value for name, value in config.base.items() if name.startswith("args.")}
    assert added == {"args.hicache_ratio": 1.5, "args.enable_dp_lm_head": True, "args.log_level": "debug"}


@pytest.mark.parametrize(("pair", "line"), [("api-key=x", "looks like a secret"), ("Tp=8", "write the flag without")])
def test_bad_on_the_command_line(pair: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        named_args([pair])
    with pytest.raises(InputError, match="--launch-arg is for kind sglang, and this is reference"):
        with_args(load_launch("local"), ["hicache_ratio=2"])

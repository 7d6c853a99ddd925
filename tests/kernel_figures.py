"""The figures of results/h200/kernels/README.md that no command of dsabench prints.

python tests/kernel_figures.py results/h200/kernels
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from scipy.stats import binom, binomtest

from dsabench.microbench.measured import Measurement
from dsabench.microbench.pairs import FILE_NAME, Pair
from dsabench.microbench.shape_id import shape_of
from dsabench.microbench.table import read_points

Cases = dict[tuple[str, str, str], dict[str, Measurement]]


def us(m: Measurement) -> float:
    """Its median; a point of the table has one."""
    assert m.median_us is not None
    return m.median_us


def by_case(points: Iterable[Measurement]) -> Cases:
    """(operator, shape, dtype) → candidates."""
    cases: Cases = defaultdict(dict)
    for m in points:
        cases[m.operator, m.shape_id, m.dtype][m.candidate] = m
    return cases


def say(what: str, speeds: list[float]) -> None:
    """Median, range and how many reach 0.7."""
    reached = sum(speed >= 0.7 for speed in speeds)
    print(
        f"{what}: {median(speeds):.2f} ({min(speeds):.2f} to {max(speeds):.2f}), 0.7 or more in {reached} of {len(speeds)}"
    )


def triton(cases: Cases) -> None:
    """Speed against the fastest other candidate by heads, and against each by itself."""
    for operator in ("sparse_decode", "mtp_verify"):
        for dtype in ("fp8", "bf16"):
            mine = [
                (shape_of(k[1]), c) for k, c in cases.items() if k[0] == operator and k[2] == dtype and "triton" in c
            ]
            for heads in (128, 64, 16, 8):
                of = [c for shape, c in mine if shape.heads == heads]
                best = [min(us(m) for n, m in c.items() if n != "triton") / us(c["triton"]) for c in of]
                say(f"triton, {operator} {dtype} {heads} heads, of the fastest other", best)
            for name in sorted({n for _, c in mine for n in c} - {"triton"}):
                say(f"triton, {operator} {dtype}, of {name}", [us(c[name]) / us(c["triton"]) for _, c in mine])


def regimes(cases: Cases) -> None:
    """flashmla_kv against flashmla_sparse by cached tokens for each new one."""
    ratios = [
        (shape_of(k[1]), us(c["flashmla_kv"]) / us(c["flashmla_sparse_dequantise"]))
        for k, c in cases.items()
        if k[0] == "sparse_prefill" and len(c) > 1
    ]
    for low, high in ((0, 8), (8, 32), (32, 64), (64, 128), (128, 1 << 30)):
        found = [ratio for shape, ratio in ratios if low < shape.kv_tokens / shape.q_tokens <= high]
        faster = sum(ratio > 1 for ratio in found)
        print(
            f"KV tokens {low} to {high} × new: flashmla_sparse faster in {faster} of {len(found)}, median {median(found):.2f}"
        )


def main(folder: Path) -> None:
    """Print all."""
    points = [m for m in read_points(folder) if m.status == "ok"]
    cases = by_case(points)
    print(f"{len(points)} points, {sum(len(c) > 1 for c in cases.values())} cases with two candidates or more")
    regimes(cases)
    triton(cases)
    below = [m for m in points if m.floor_us and us(m) < m.floor_us]
    print(f"{len(below)} faster than their floor; most bytes a second in dense_prefill: {_rate(points):.2f} TB/s")
    pairs = [Pair.model_validate_json(line) for line in (folder / FILE_NAME).read_text().splitlines()]
    apart = sum(pair.is_apart for pair in pairs)
    interval = binomtest(apart, len(pairs)).proportion_ci()
    print(
        f"{apart} of {len(pairs)} pairs told apart: {interval.low:.2%} to {interval.high:.2%}; chance of no more where 1 % "
        f"is true: {binom.cdf(apart, len(pairs), 0.01):.0%}"
    )


def _rate(points: Iterable[Measurement]) -> float:
    return max((m.bytes or 0) / us(m) / 1e6 for m in points if m.operator == "dense_prefill")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

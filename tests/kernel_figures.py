"""The figures of results/h200/kernels*/README.md that no command of dsabench prints.

python tests/kernel_figures.py results/h200/kernels
python tests/kernel_figures.py results/h200/kernels-rest
python tests/kernel_figures.py --pairs results/h200/kernels results/h200/kernels-rest
python tests/kernel_figures.py --prefix results/h200/kernels results/h200/kernels-rest
python tests/kernel_figures.py --again results/h200/kernels results/h200/kernels-rest
python tests/kernel_figures.py --sustained results/h200/rank-kernels [--draw power.svg]
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from scipy.stats import binom, binomtest

from dsabench.kernelbench.records import KernelMeasurement, shape_of
from dsabench.kernelbench.summary import are_apart
from dsabench.kernelbench.table import read_points

Cases = dict[tuple[str, str, str], dict[str, KernelMeasurement]]
_MOST_DRAFTS = 4
_MISSING = 0.1
"""Of the wanted rows, as swap-in's inputs are drawn."""
_LENGTHS = (2048, 8192, 40_000, 1 << 20)
"""Logits of a row: all are taken, a few times more than are taken, up to the longest."""


def us(m: KernelMeasurement) -> float:
    """Its median; a point of the table has one."""
    assert m.median_us is not None
    return m.median_us


def by_case(points: Iterable[KernelMeasurement]) -> Cases:
    """(operator, shape, dtype) → candidates; of a point that several machines measured, the last."""
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
                if not of:
                    continue
                best = [min(us(m) for n, m in c.items() if n != "triton") / us(c["triton"]) for c in of]
                say(f"triton, {operator} {dtype} {heads} heads, of the fastest other", best)
            for name in sorted({n for _, c in mine for n in c} - {"triton"}):
                say(f"triton, {operator} {dtype}, of {name}", [us(c[name]) / us(c["triton"]) for _, c in mine])


def regimes(cases: Cases) -> None:
    """flashmla_kv against flashmla_sparse by cached tokens for each new one."""
    ratios = [
        (shape_of(k[1]), us(c["flashmla_kv"]) / us(c["flashmla_sparse_dequantise"]))
        for k, c in cases.items()
        if k[0] == "sparse_prefill" and {"flashmla_kv", "flashmla_sparse_dequantise"} <= c.keys()
    ]
    for low, high in ((0, 8), (8, 32), (32, 64), (64, 128), (128, 1 << 30)):
        found = [ratio for shape, ratio in ratios if low < shape.kv_tokens / shape.q_tokens <= high]
        if not found:
            continue
        faster = sum(ratio > 1 for ratio in found)
        print(
            f"KV tokens {low} to {high} × new: flashmla_sparse faster in {faster} of {len(found)}, median {median(found):.2f}"
        )


def beside(cases: Cases, name: str) -> None:
    """How much longer a candidate takes than each other on the same shapes, by operator and dtype."""
    times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (operator, _, dtype), c in cases.items():
        for other in c.keys() - {name} if name in c else ():
            times[operator, dtype, other].append(us(c[name]) / us(c[other]))
    for key, ratios in sorted(times.items()):
        print(f"{name}, {' '.join(key)}: {median(ratios):.2f} times as long ({_ends(ratios)}) in {len(ratios)} shapes")


def behind(cases: Cases, name: str) -> None:
    """How much longer a candidate of bfloat16 takes than the fastest other of its shape, of its own cache and of either."""
    for operator in sorted({operator for operator, _, dtype in cases if name in cases[operator, _, dtype]}):
        for dtypes in (("bf16",), ("bf16", "fp8")):
            ratios = [
                us(c[name]) / min(us(m) for d in dtypes for n, m in cases.get((o, s, d), {}).items() if n != name)
                for (o, s, dtype), c in cases.items()
                if o == operator and dtype == "bf16" and name in c
            ]
            print(
                f"{name}, {operator}, of the fastest other ({' or '.join(dtypes)}): {median(ratios):.2f} times as long "
                f"({_ends(ratios)}), the fastest in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"
            )


def side_by_side(cases: Cases) -> None:
    """Median µs of every candidate of sparse attention, where tilelang is among them, bfloat16 and fp8 on one line."""
    for operator, shape_id, dtype in cases:
        if "tilelang" in cases[operator, shape_id, dtype]:
            both = [(n, d, m) for d in ("bf16", "fp8") for n, m in cases.get((operator, shape_id, d), {}).items()]
            print(f"{operator} {shape_id}: " + ", ".join(f"{n} {d} {us(m):,.1f}" for n, d, m in both))


def topk(cases: Cases) -> None:
    """Time of each top-k over sgl_kernel's and over the fastest, by phase and logits of a row."""
    found: dict[tuple[str, int, str], list[tuple[float, bool]]] = defaultdict(list)
    for (operator, shape_id, _), c in cases.items():
        shape = shape_of(shape_id)
        if operator != "topk_select" or "sgl_kernel" not in c:
            continue
        phase = "decode and verify" if shape.q_tokens <= _MOST_DRAFTS else "prefill"
        length = next(top for top in _LENGTHS if shape.kv_tokens <= top)
        timed = {n: m.times for n, m in c.items()}
        first = min(timed, key=lambda n: us(c[n]))
        for name, mine in timed.items():
            best = timed[first]
            assert mine is not None
            assert best is not None
            wins = name == first and not any(
                other is not None and n != name and not are_apart(mine, other) for n, other in timed.items()
            )
            found[phase, length, name].append((us(c[name]) / us(c["sgl_kernel"]), wins))
    for (phase, length, name), about in sorted(found.items()):
        ratios = [ratio for ratio, _ in about]
        wins = sum(win for _, win in about)
        print(
            f"top-k, {phase}, to {length:,} logits, {name}: {median(ratios):.2f} of sgl_kernel's time ({_ends(ratios)}), "
            f"fastest in {wins} of {len(about)}"
        )


def rounding(points: Iterable[KernelMeasurement], cases: Cases) -> None:
    """Errors of flashmla_sparse_q8, whether timed or not."""
    for m in points:
        if m.candidate == "flashmla_sparse_q8":
            c = cases.get((m.operator, m.shape_id, m.dtype), {})
            others = {
                n: us(c[n]) / us(m) - 1 for n in ("flashmla_sparse_dequantise", "flashmla_kv") if n in c and m.times
            }
            faster = ", ".join(f"{n} {share:+.1%}" for n, share in others.items())
            print(f"{m.candidate} {m.shape_id}: {m.status}, error {m.rel_err:.3f}; {faster or 'not timed'}")


def cache(cases: Cases) -> None:
    """Quantising and dequantising: median µs of every candidate and the floor, and the time of a token more."""
    for key, c in cases.items():
        if key[0] in ("kv_quantise", "kv_dequantise"):
            floor = next(m.floor_us for m in c.values())
            first, second = sorted(us(m) for m in c.values())[:2]
            times = ", ".join(f"{n} {us(m):.1f}" for n, m in c.items())
            print(
                f"{key[0]} {key[1]}: {times}; floor {floor:.3g}, {first / (floor or first):.1f} times; next {second / first:.2f} times"
            )
    alone = _prefixes(cases)
    if alone:
        (few, short), *_, (many, long) = alone
        print(
            f"sglang_triton, kv_dequantise: {(long - short) / (many - few) * 1e3:.2f} ns a token from {few:,} to {many:,}"
        )


def copies(points: Iterable[KernelMeasurement]) -> None:
    """Swap-in by machine: both copies, their ratio, and what a row that is copied takes and moves."""
    by_machine: dict[tuple[str, str], dict[str, KernelMeasurement]] = defaultdict(dict)
    for m in points:
        if m.operator == "hisparse_swap_in":
            by_machine[m.environment.fingerprint, m.shape_id][m.candidate] = m
    for (machine, shape_id), c in by_machine.items():
        shape = shape_of(shape_id)
        said = []
        for name, share in (("torch_copy_missing", _MISSING), ("torch_copy_all", 1.0)):
            rows, m = shape.selected * share, c[name]
            rate = rows * 2 * shape.dimensions.width / us(m) / 1e3
            said.append(
                f"{name} {us(m):,.1f} ± {m.mad_us:,.1f} (n {m.n}), {us(m) / rows:.2f} µs a row, {rate:.2f} GB/s"
            )
        ratio = us(c["torch_copy_all"]) / us(c["torch_copy_missing"])
        print(f"hisparse_swap_in {shape_id} {machine}: {'; '.join(said)}; {ratio:.2f} times as long")


def again(whole: Sequence[KernelMeasurement], rest: Sequence[KernelMeasurement]) -> None:
    """Time of the second folder over that of the first, of the points that are in both."""
    before = {m.point: us(m) for m in whole}
    ratios: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for m in rest:
        if m.point in before:
            ratios[m.operator, m.dtype, m.candidate].append(us(m) / before[m.point])
            ratios[m.operator, "all", "together"].append(us(m) / before[m.point])
    for key, found in sorted(ratios.items()):
        print(f"{' '.join(key)}: {median(found):.3f} of the time ({_ends(found)}) in {len(found)} points")


def prefix(whole: Cases, rest: Cases) -> None:
    """What dequantising alone takes beside a call of flashmla_sparse that contains it, one sequence of V3.2, 128 heads."""
    alone = _prefixes(rest)
    for new in (16, 64, 256, 1024, 4096, 16384):
        calls = sorted(
            (shape.kv_tokens, us(c["flashmla_sparse_dequantise"]))
            for (_, shape_id, _), c in whole.items()
            if "flashmla_sparse_dequantise" in c
            and (shape := shape_of(shape_id)).id.startswith(f"v3.2-h128-b1-q{new}-")
            and shape.kv_tokens > new
        )
        (few, short), *_, (many, long) = calls
        shares = [f"{kv - new:,} {_between(alone, kv) / time:.1%} of {time:,.0f}" for kv, time in calls]
        print(f"{new} new over {'; '.join(shares)}; a token more {(long - short) / (many - few) * 1e3:.2f} ns")
    for (operator, shape_id, _), c in rest.items():
        plain = rest.get((operator, shape_id, "bf16"), {})
        if "flashmla_sparse_dequantise" in c and shape_of(shape_id).kv_tokens > shape_of(shape_id).q_tokens:
            more = us(c["flashmla_sparse_dequantise"]) - us(plain["flashmla_sparse"])
            print(
                f"{shape_id}: {more:.1f} µs more than over bfloat16, {_between(alone, shape_of(shape_id).kv_tokens):.1f} alone"
            )


def _prefixes(cases: Cases) -> list[tuple[int, float]]:
    """Cached tokens of one sequence and what sglang_triton takes to dequantise them."""
    return sorted(
        (shape_of(shape_id).kv_tokens, us(c["sglang_triton"]))
        for (operator, shape_id, _), c in cases.items()
        if operator == "kv_dequantise" and "sglang_triton" in c and shape_of(shape_id).batch == 1
    )


def _between(points: Sequence[tuple[int, float]], x: int) -> float:
    """On the line between its neighbours."""
    (a, low), (b, high) = next(pair for pair in pairwise(points) if pair[0][0] <= x <= pair[1][0])
    return low + (high - low) * (x - a) / (b - a)


def shown_pairs(folders: Sequence[Path]) -> None:
    """A/A of all folders together."""
    pairs = [json.loads(line) for f in folders for line in (f / "twice.jsonl").read_text().splitlines()]
    apart = sum(pair["is_apart"] for pair in pairs)
    interval = binomtest(apart, len(pairs)).proportion_ci()
    most = binomtest(apart, len(pairs), alternative="less").proportion_ci(0.95).high
    differences = [abs(pair["second_us"] / pair["first_us"] - 1) for pair in pairs]
    print(
        f"{apart} of {len(pairs)} pairs told apart: {interval.low:.2%} to {interval.high:.2%}; one-sided, at most {most:.3%}; "
        f"chance of no more where 1 % is true: {binom.cdf(apart, len(pairs), 0.01):.1%}; median difference "
        f"{median(differences):.2%}, largest {max(differences):.2%}"
    )


def main(folder: Path) -> None:
    """Print all."""
    everything = read_points(folder)
    points = [m for m in everything if m.status == "ok"]
    cases = by_case(points)
    print(f"{len(points)} points, {sum(len(c) > 1 for c in cases.values())} cases with two candidates or more")
    for (*what, status), count in sorted(
        Counter((m.operator, m.dtype, m.candidate, m.status) for m in everything).items()
    ):
        print(f"{' '.join(what)}: {count} {status}")
    if any(len(c) > 1 for key, c in cases.items() if key[0] == "sparse_prefill"):
        regimes(cases)
    triton(cases)
    for name in ("tilelang", "flashmla_sparse_q8"):
        beside(cases, name)
    behind(cases, "tilelang")
    side_by_side(cases)
    for key, c in cases.items():
        if key[0].startswith("indexer") and {"triton", "deep_gemm"} <= c.keys():
            print(f"triton, {key[0]} {key[1]}: {us(c['triton']) / us(c['deep_gemm']):.2f} of deep_gemm's time")
    topk(cases)
    cache(cases)
    copies(points)
    rounding(everything, cases)
    below = [m for m in points if m.floor_us and us(m) < m.floor_us]
    rate = _rate(points)
    print(
        f"{len(below)} faster than their floor"
        + (f"; most bytes a second in dense_prefill: {rate:.2f} TB/s" if rate else "")
    )
    shown_pairs([folder])


def sustained(points: Sequence[KernelMeasurement]) -> None:
    """By shape: one call, a call back to back, clock and power then; what a point has of several runs stands in their order.

    Then by candidate how much longer back to back takes, and of each shape of prefill the first candidate's lead over the second.
    """
    shown: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    longer: dict[tuple[str, str, str, float], list[float]] = defaultdict(list)
    leads: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    beside: dict[tuple[str, str], list[KernelMeasurement]] = defaultdict(list)
    for m in points:
        assert m.sustained_us is not None
        assert m.sustain_s is not None
        held = f" {m.sustained_slowed}" if m.sustained_slowed else ""
        state = f"{m.sustained_sm_mhz} MHz {m.sustained_power_w:.0f} W{held}"
        shown[m.operator, m.dtype, m.shape_id][m.candidate].append(f"{us(m):.1f} -> {m.sustained_us:.1f} µs {state}")
        longer[m.operator, m.dtype, m.candidate, m.sustain_s].append(m.sustained_us / us(m))
        if m.operator == "sparse_prefill" and m.candidate != "triton":
            beside[m.dtype, m.shape_id].append(m)
    for key, candidates in shown.items():
        print(*key)
        for name, said in candidates.items():
            print(f"  {name}: {'; '.join(said)}")
    for (*words, seconds), ratios in sorted(longer.items()):
        high = f"{sum(ratio > 1.05 for ratio in ratios)} of {len(ratios)} above 1.05"
        print(
            f"{' '.join(map(str, words))}, {seconds:g} s: {median(ratios):.2f} ({_ends(ratios)}) times as long, {high}"
        )
    for (dtype, shape), both in beside.items():
        # flashmla_sparse before flashmla_kv and fa3
        first, second = sorted(both, key=lambda m: m.candidate, reverse=True)
        leads[dtype].append((shape, us(second) / us(first), _us(second) / _us(first)))
    for dtype, found in leads.items():
        print(
            f"{dtype} prefill, second ÷ first: one {_ends([a for _, a, _ in found])}, median {median(a for _, a, _ in found):.2f}"
        )
        print(f"  back to back {_ends([b for *_, b in found])}, median {median(b for *_, b in found):.2f}")
        print("".join(f"  {shape} {one:.2f} {then:.2f}\n" for shape, one, then in found), end="")


def draw_sustained(points: Sequence[KernelMeasurement], file: Path) -> None:
    """Time back to back over that of one call above, clock below; by chunk behind 4,096 tokens, and by requests of 4,096."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    rcParams["svg.fonttype"], rcParams["svg.hashsalt"] = "none", "dsabench"
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    longest = max(m.sustain_s or 0.0 for m in points)
    names = sorted({_name(m) for m in points})
    for column, (operator, axis) in enumerate((("sparse_prefill", "tokens of a chunk"), ("sparse_decode", "requests"))):
        lines: dict[str, list[tuple[int, float, int]]] = defaultdict(list)
        for m in points:
            shape = shape_of(m.shape_id)
            is_shown = shape.kv_tokens - shape.q_tokens == 4096 or (
                operator == "sparse_decode" and shape.kv_tokens == 4096
            )
            if m.operator == operator and is_shown and m.sustain_s == longest:
                x = shape.q_tokens if operator == "sparse_prefill" else shape.batch
                lines[_name(m)].append((x, _us(m) / us(m), m.sustained_sm_mhz or 0))
        for name, found in sorted(lines.items()):
            xs, ratios, clocks = zip(*sorted(found), strict=True)
            for panel, values in ((panels[0, column], ratios), (panels[1, column], clocks)):
                panel.plot(xs, values, marker="o", markersize=4, color=f"C{names.index(name)}", label=name)
        panels[0, column].axhline(1.0, color="0.7", linewidth=0.8)
        panels[1, column].set_xscale("log", base=2)
        panels[1, column].xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        panels[1, column].set_xlabel(f"{operator}: {axis}")
    panels[0, 0].set_ylabel("back to back ÷ one call")
    panels[1, 0].set_ylabel("clock back to back, MHz")
    panels[0, 1].legend(*panels[0, 0].get_legend_handles_labels(), fontsize=8)
    figure.savefig(file, metadata={"Date": None})


def _name(m: KernelMeasurement) -> str:
    return f"{m.candidate.removesuffix('_dequantise')}, {m.dtype}"


def _us(m: KernelMeasurement) -> float:
    assert m.sustained_us is not None
    return m.sustained_us


def _ends(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _rate(points: Iterable[KernelMeasurement]) -> float:
    return max(((m.bytes or 0) / us(m) / 1e6 for m in points if m.operator == "dense_prefill"), default=0.0)


if __name__ == "__main__":
    if sys.argv[1] == "--pairs":
        shown_pairs([Path(name) for name in sys.argv[2:]])
    elif sys.argv[1] == "--prefix":
        prefix(*(by_case(m for m in read_points(Path(name)) if m.status == "ok") for name in sys.argv[2:4]))
    elif sys.argv[1] == "--again":
        again(*([m for m in read_points(Path(name)) if m.status == "ok"] for name in sys.argv[2:4]))
    elif sys.argv[1] == "--sustained":
        sustained(read_points(Path(sys.argv[2])))
        if sys.argv[3:4] == ["--draw"]:
            draw_sustained(read_points(Path(sys.argv[2])), Path(sys.argv[4]))
    else:
        main(Path(sys.argv[1]))

"""The committed kernel times: a table is its journal, one command measures them again, pages say what they say."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_figures
from dsabench.cli.run_kernels import ask
from dsabench.config.load import load_study
from dsabench.kernelbench import selection
from dsabench.kernelbench.records import KernelMeasurement, read
from dsabench.kernelbench.request import KernelPoint
from dsabench.kernelbench.table import TABLE_NAME, read_points
from dsabench.model.tuned_table import choose as choose_kernel
from dsabench.reporting.kernel_shares import shares
from dsabench.results.tuned_tables import read_table
from dsabench.tuners.observed import of_kernels
from dsabench.tuners.target import target_of
from dsakernels.candidates.candidate import KernelDevice

RESULTS = Path(__file__).parents[3] / "results/h200"


def timed(folder: str) -> list[KernelMeasurement]:
    return [m for m in read(RESULTS / folder) if m.status == "ok"]


@pytest.mark.parametrize("folder", ["kernels", "kernels-rest", "swap-in"])
def test_a_committed_table_holds_the_points_of_its_journal_that_have_times(folder, tmp_path):
    (tmp_path / TABLE_NAME).symlink_to(RESULTS / folder / TABLE_NAME)
    found = {(m.point, m.environment.fingerprint): m.times for m in read_points(tmp_path)}
    assert found == {(m.point, m.environment.fingerprint): m.times for m in timed(folder)}


def test_both_sets_of_pairs_together_put_the_share_told_apart_below_one_in_a_hundred(capsys):
    kernel_figures.shown_pairs([RESULTS / "kernels", RESULTS / "kernels-rest"])
    said = capsys.readouterr().out
    assert said.startswith("2 of 635 pairs told apart: 0.04% to 1.13%; one-sided, at most 0.988%;")


@pytest.mark.parametrize("operator", ["kv_quantise", "kv_dequantise"])
def test_sglangs_kernel_is_the_fastest_in_every_shape_of_the_cache_operators(operator):
    points = read(RESULTS / "kernels-rest")
    found = [share for share in shares(points) if share.operator == operator]
    assert {(s.candidate, s.fastest == s.shapes) for s in found if s.fastest} == {("sglang_triton", True)}


def test_one_command_measures_every_committed_point_again(tmp_path):
    """The script is run with a program that writes down what it is asked; what that selects is what is in the folder."""
    recorder = tmp_path / "recorder"
    recorder.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "" >> "$RECORD"\n')
    recorder.chmod(0o755)
    env = {**os.environ, "DSABENCH": str(recorder), "RECORD": str(tmp_path / "asked")}
    script = ["sh", str(RESULTS / "kernels/reproduce.sh"), "/opt/sglang/bin/python", str(tmp_path / "again")]
    subprocess.run(script, env=env, cwd=RESULTS.parents[1], check=True)
    asked = [words.split("\n") for words in (tmp_path / "asked").read_text().rstrip("\n").split("\n\n")]
    assert [words[:2] for words in asked] == [["kernels", "bench"]] * 3
    selected = {point for words in asked for point in points_of(words[2:])}
    assert selected == {measurement.point for measurement in read(RESULTS / "kernels")}


def points_of(words: list[str]) -> Iterator[KernelPoint]:
    first = next(place for place, word in enumerate(words) if word.startswith("--"))
    options = dict(zip(words[first::2], words[first + 1 :: 2], strict=True))
    assert options["--device"] == "cuda"
    names = {name: options.get(f"--{name}", "") for name in ("candidates", "shapes", "dtypes")}
    request = ask("bench", operators=words[:first], **names, device="cuda")
    for operator in selection.operators(request):
        for candidate in selection.candidates(request, operator):
            dtypes = [
                one for one in operator.dtypes if one in candidate.dtypes and one in (request.dtypes or operator.dtypes)
            ]
            for shape in selection.shapes(request, operator, KernelDevice("cuda", "sm90")):
                yield from (KernelPoint(operator.name, candidate.name, shape.id, dtype) for dtype in dtypes)


def test_the_readme_of_the_rest_counts_its_points():
    statuses = Counter(m.status for m in read(RESULTS / "kernels-rest"))
    said = f"{sum(statuses.values())}\npoints ({statuses['ok']} ok, {statuses['wrong']} wrong, {statuses['unstable']} at no rest"
    assert said in (RESULTS / "kernels-rest/README.md").read_text()
    assert f"{statuses['ok']} more points" in (RESULTS.parents[1] / "docs/kernels.md").read_text()


def test_tilelang_is_the_fastest_nowhere(capsys):
    kernel_figures.behind(kernel_figures.by_case(timed("kernels-rest")), "tilelang")
    said = capsys.readouterr().out
    assert "tilelang, mtp_verify, of the fastest other (bf16 or fp8): 4.55 times as long (1.98 to 9.22)" in said
    assert [line.rpartition(", ")[2] for line in said.splitlines()] == [
        f"the fastest in 0 of {shapes}" for shapes in (24, 24, 10, 10, 6, 6)
    ]


def test_verify_took_the_same_time_on_another_card(capsys):
    kernel_figures.again(timed("kernels"), timed("kernels-rest"))
    assert "mtp_verify all together: 0.999 of the time (0.98 to 1.02) in 120 points" in capsys.readouterr().out


def test_the_swap_in_kernel_took_what_its_readme_says():
    points = read(RESULTS / "swap-in")
    assert {m.rel_err for m in points} == {0.0}
    assert Counter(m.status for m in points) == {"ok": 24, "unstable": 6}
    said = (RESULTS / "swap-in/README.md").read_text()
    times = [m for m in points if m.candidate == "sglang_jit" and m.status == "ok"]
    assert len(times) == 9
    for m in times:
        assert f"**{m.median_us:.1f}** ({m.low_us:.1f} to {m.high_us:.1f})" in said
    most = {m.dtype: m.link_bytes / m.median_us / 1e3 for m in times if "-b32-" in m.shape_id and m.median_us}
    assert {dtype: round(gb_s, 1) for dtype, gb_s in most.items()} == {"bf16": 42.1, "fp8": 35.5}
    assert {round(m.ceiling_link_gb_s or 0, 1) for m in times} == {55.5}


def test_the_table_chooses_the_slower_kernel_at_no_measured_shape_of_its_heads():
    [file] = (RESULTS / "tables").glob("flashmla_auto,H=128,*.json")
    rule = read_table(file).rule
    points = of_kernels(RESULTS / "kernels" / TABLE_NAME, target_of(load_study("h200-slice"))).points
    assert len(points) == 107
    for point in points:
        new, cached = point.step
        kernel = choose_kernel(rule, new_tokens=new, kv_tokens=cached)
        assert kernel == "flashmla_kv" or point.lost(kernel) == 0, point.step

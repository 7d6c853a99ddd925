from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from dsabench.errors import InputError, StoreError
from dsabench.kernelbench.records import FILE_NAME, KernelMeasurement, append, latest, read, unreadable
from dsabench.kernelbench.table import TABLE_NAME, read_points, write_table
from dsabench.model.environment import Environment, Gpu, Hardware, RuntimeIdentity
from dsabench.reporting import kernel_page
from dsabench.reporting.kernel_shares import shares
from dsakernels.operators import OPERATORS

MACHINE = Environment(
    fingerprint="f" * 16,
    hardware=Hardware(cpu="a cpu", cpu_cores=2, memory_mib=1024),
    runtime=RuntimeIdentity(kind="reference", version="1", wheel_hash="0", torch="2"),
    host="h",
    os="o",
    dsabench_version="1",
)


def measurement(candidate="a", median_us=10.0, **fields):
    known = {"mad_us": 0.1, "low_us": median_us - 0.2, "high_us": median_us + 0.2, "n": 15, "floor_us": 2.0}
    point = {"operator": "sparse_decode", "shape_id": "small-h8-b1-q1-kv40", "dtype": "bf16", "status": "ok"}
    about = {"seed": 0, "started_at": datetime.now(UTC), "environment": MACHINE}
    return KernelMeasurement(**{**point, "candidate": candidate, "median_us": median_us, **known, **about, **fields})


def test_a_torn_line_costs_only_itself(tmp_path):
    first, second = measurement("a"), measurement("b")
    append(tmp_path, first)
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"operator": "spar')
    append(tmp_path, second)
    assert read(tmp_path) == (first, second)
    assert unreadable(tmp_path) == 1
    assert unreadable(tmp_path / "nowhere") == 0


def test_the_last_measurement_of_an_environment_counts():
    old, new = measurement(median_us=10.0), measurement(median_us=11.0)
    elsewhere = measurement(environment=MACHINE.model_copy(update={"fingerprint": "0" * 16}))
    assert list(latest([old, new, elsewhere], MACHINE.fingerprint).values()) == [new]


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="the measurement was not written"):
        append(tmp_path / "file", measurement())


def test_a_fifth_of_the_shapes_is_held_out_whatever_the_candidate():
    splits = [measurement(shape_id=f"small-h8-b1-q1-kv{kv}").split for kv in range(1, 1001)]
    assert 150 < splits.count("held_out") < 250
    assert measurement("a").split == measurement("b").split


def test_a_table_alone_can_be_read_back(tmp_path):
    kept = measurement("a", n=15, bytes=1 << 40, graph=True, sm_mhz=1980)
    write_table(tmp_path, [measurement("a", 11.0), kept, measurement("b", status="unstable")])
    assert read_points(tmp_path) == (kept,)
    append(tmp_path, measurement("journal"))
    assert [m.candidate for m in read_points(tmp_path)] == ["journal"]


def test_a_file_that_is_no_such_table_is_said(tmp_path):
    (tmp_path / TABLE_NAME).write_bytes(b"no parquet")
    with pytest.raises(InputError, match="not a table of kernel times"):
        read_points(tmp_path)


def test_a_winner_is_named_only_where_intervals_do_not_touch():
    clear = kernel_page._cell([measurement("slow", 11.0), measurement("fast", 10.0)])
    assert (clear.word, clear.times_floor) == ("fast", 5.0)
    assert kernel_page._cell([measurement("a", 10.0), measurement("b", 10.3)]).word == "no difference"


ELSEWHERE = MACHINE.model_copy(update={"fingerprint": "0" * 16})


def test_candidates_of_two_environments_are_not_compared(tmp_path):
    here = [measurement("a", 10.0), measurement("b", 12.0)]
    there = measurement("c", 5.0, environment=ELSEWHERE)
    assert {m.candidate for m in kernel_page._by_shape([*here, there])[0]} == {"a", "b"}
    assert [m.candidate for m in kernel_page._by_shape([there, measurement("a")])[0]] == ["a"]
    found = {share.candidate: share for share in shares([*here, there])}
    assert (found["a"].fastest, found["c"].fastest, found["c"].compared) == (1, 0, 0)
    assert "5.0 +20%" in kernel_page.write_page([*here, there], tmp_path).read_text()


def test_the_page_says_what_each_operator_is():
    assert set(kernel_page._DOES) == set(OPERATORS)


def test_the_page_says_where_a_floor_means_nothing(tmp_path):
    hardware = MACHINE.hardware.model_copy(update={"gpus": (Gpu(name="a gpu", memory_mib=1024),)})
    on_gpu = {"operator": "hisparse_swap_in", "environment": MACHINE.model_copy(update={"hardware": hardware})}
    said = "means nothing there"
    assert said in kernel_page.write_page([measurement(**on_gpu)], tmp_path).read_text()
    measured = measurement(**on_gpu, link_bytes=236_160, ceiling_link_gb_s=54.8)
    assert said not in kernel_page.write_page([measured], tmp_path).read_text()


def test_the_page_escapes_what_a_file_says(tmp_path):
    page = kernel_page.write_page([measurement(), measurement("<b>", status="failed", reason="<script>")], tmp_path)
    text = page.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    # A time as a multiple of the floor, in the map, by point and by candidate alike.
    assert text.count("<th>× floor") == 2
    assert "<td>–<td>5.0<td>" in text  # by candidate; there is none to compare with
    [share] = shares([measurement()])
    assert share.times_floor == 5.0
    assert share.line.endswith("no other candidate; 5.0 times the floor")


def test_the_page_says_errors_what_gave_no_time_and_what_floors_rest_on(tmp_path):
    rounded = measurement("rounded", rel_err=0.23, ceiling_tb_s=2.755, ceiling_tflop_s=792.4)
    wrong = measurement("other", status="wrong", rel_err=0.349, reason="relative error above 0.3")
    text = kernel_page.write_page([rounded, wrong, measurement("moves", status="unstable")], tmp_path).read_text()
    assert "<td>0.23" in text
    assert "Points without a time: 1 unstable, 1 wrong." in text
    assert f"<li>other at {wrong.shape_id}: wrong, relative error above 0.3" in text
    assert "floors at 2.75 TB/s, 792 TFLOP/s<" in text
    [share] = shares([rounded])
    assert share.error == 0.23


def test_a_point_over_the_hosts_link_keeps_what_its_floor_rests_on(tmp_path):
    fast = {"ceiling_tb_s": 4.25, "ceiling_tflop_s": 792.4}
    swapped = measurement("swaps", **fast, ceiling_link_gb_s=54.83, link_bytes=236_160)
    write_table(tmp_path, [swapped, measurement("reads", **fast)])
    again = {m.candidate: m for m in read_points(tmp_path)}
    assert (again["swaps"].ceiling_link_gb_s, again["swaps"].link_bytes) == (54.83, 236_160)
    assert (again["reads"].ceiling_link_gb_s, again["reads"].link_bytes) == (None, None)
    text = kernel_page.write_page([swapped], tmp_path).read_text()
    assert "floors at 4.25 TB/s, 792 TFLOP/s, 54.8 GB/s from the host<" in text


def test_the_page_says_both_errors_of_a_candidate_that_is_held_to_rounded_inputs(tmp_path):
    text = kernel_page.write_page([measurement("rounds", rel_err=0.349, rounded_err=0.0302)], tmp_path).read_text()
    assert "<td>0.35 (0.03 of rounded inputs)" in text


def test_the_page_says_what_a_point_moved_and_computed_in_a_second(tmp_path):
    point = measurement(median_us=10.0, bytes=20_500_000, flops=3_000_000_000)
    assert "<td>2.05<td>300.0<td>5.0" in kernel_page.write_page([point], tmp_path).read_text()


def test_a_prefill_map_has_a_row_for_each_prefix_and_a_decode_map_for_each_length(tmp_path):
    def labels(operator, *shape_ids):
        measured = [measurement(operator=operator, shape_id=shape_id) for shape_id in shape_ids]
        page = kernel_page.write_page(measured, tmp_path).read_text()
        return set(re.findall(r"<tr><th>([\d,]+)<td", page))

    assert labels("sparse_prefill", "glm5-h8-b1-q1024-kv2048", "glm5-h8-b1-q2048-kv3072") == {"1,024"}
    assert labels("sparse_decode", "glm5-h8-b1-q1-kv2048", "glm5-h8-b8-q1-kv3072") == {"2,048", "3,072"}


def test_the_page_says_what_a_kernel_needs_back_to_back_where_that_was_measured(tmp_path):
    under_load = {"sustain_s": 0.6, "sustained_us": 11.5, "sustained_sm_mhz": 1605, "sustained_power_w": 698.4}
    hot = measurement("hot", 10.0, **under_load, sustained_slowed="power cap")
    write_table(tmp_path, [hot, measurement("cold", 12.0)])
    points = read_points(tmp_path)
    assert {m.candidate: (m.sustain_s, m.sustained_us, m.sustained_slowed) for m in points} == {
        "hot": (0.6, 11.5, "power cap"),
        "cold": (None, None, None),
    }
    text = kernel_page.write_page(points, tmp_path).read_text()
    assert "<td>11.5<td>1,605<td>698<td>power cap" in text.replace("</td>", "")
    assert "× 1.15 (up to 1.15)" in text
    (cold, line) = (share.line for share in shares(points))
    assert line.endswith("back to back 1.15 times as long, 1.15 at most")
    assert "back to back" not in cold

"""What a table of kernel times has to be before a rule is fitted to it."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsabench.errors import InputError
from dsabench.runtimes.protocol import AttentionShape
from dsabench.tuners.observed import of_kernels

MEASURED = Path(__file__).parents[3] / "results" / "h200" / "kernels" / "kernels.parquet"
TARGET = AttentionShape("sglang", heads_per_rank=128, index_topk=2048, layers=61)


@pytest.fixture(scope="module")
def measured():
    table = pq.read_table(MEASURED)
    rows = [row for row in table.to_pylist() if row["operator"] == "sparse_prefill" and row["dtype"] == "fp8"]
    return table.schema, [row for row in rows if row["shape_id"].startswith("v3.2-h128-")]


def written(folder: Path, schema: pa.Schema, rows: list[dict]) -> Path:
    file = folder / "kernels.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file


@pytest.mark.parametrize("name", ["median_us", "low_us", "high_us"])
@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_time_that_is_none_is_named(tmp_path, measured, name, value):
    schema, rows = measured
    file = written(tmp_path, schema, [*rows[:-1], {**rows[-1], name: value}])
    with pytest.raises(InputError, match=rf"{rows[-1]['candidate']} at {rows[-1]['shape_id']} has the time .*again"):
        of_kernels(file, TARGET)


@pytest.mark.parametrize("median_us", [0.0, -1.0])
def test_no_kernel_takes_no_time(tmp_path, measured, median_us):
    schema, rows = measured
    with pytest.raises(InputError, match="measure that shape again"):
        of_kernels(written(tmp_path, schema, [*rows[:-1], {**rows[-1], "median_us": median_us}]), TARGET)


@pytest.mark.parametrize(("shapes", "said"), [(1, "1 shape with"), (4, "4 shapes with")])
def test_of_few_shapes_no_rule_is_made(tmp_path, measured, shapes, said):
    """Of one shape at which flashmla_sparse is faster came "always", with an interval of no width."""
    schema, rows = measured
    fit = sorted({row["shape_id"] for row in rows if row["split"] != "held_out"})[:shapes]
    file = written(tmp_path, schema, [row for row in rows if row["shape_id"] in fit or row["split"] == "held_out"])
    with pytest.raises(InputError, match=f"{said} 128 heads.*a rule takes 5, held-out ones not counted"):
        of_kernels(file, TARGET)


def test_five_shapes_are_enough_and_of_two_environments_the_last_counts(tmp_path, measured):
    schema, rows = measured
    fit = sorted({row["shape_id"] for row in rows if row["split"] != "held_out"})[:5]
    few = [row for row in rows if row["shape_id"] in fit]
    assert len(of_kernels(written(tmp_path, schema, few), TARGET).points) == 5
    later = [{**row, "fingerprint": "other", "gpu": "NVIDIA B200"} for row in few]
    assert of_kernels(written(tmp_path, schema, [*rows, *later]), TARGET).device == "NVIDIA_B200"
    alone = [row for row in later if row["candidate"] == "flashmla_kv"]
    with pytest.raises(InputError, match="last environment"):
        of_kernels(written(tmp_path, schema, [*rows, *alone]), TARGET)

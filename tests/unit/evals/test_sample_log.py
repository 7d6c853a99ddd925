from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.evals.sample_log import read_samples

COMMITTED = Path(__file__).parents[3] / "results" / "reference-cpu" / "samples"


def test_packed_samples_are_read_where_the_file_itself_is_gone(tmp_path: Path) -> None:
    plain = min(COMMITTED.glob("gsm8k-form-*.jsonl"))
    (tmp_path / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_samples(tmp_path / plain.name) == read_samples(plain)
    assert len(read_samples(plain)) == 200


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    packed = tmp_path / "one.jsonl.gz"
    for damage in (b"no gzip", gzip.compress(b"{}\n" * 1000)[:-20]):
        packed.write_bytes(damage)
        with pytest.raises(InputError, match=r"one\.jsonl\.gz: damaged"):
            read_samples(tmp_path / "one.jsonl")

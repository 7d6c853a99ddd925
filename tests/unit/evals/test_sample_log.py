from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.evals.sample_log import read_samples

COMMITTED = Path(__file__).parents[3] / "results" / "reference-cpu-threshold" / "allowed" / "samples"


def test_packed_samples_are_read_where_the_file_itself_is_gone(tmp_path: Path) -> None:
    packed = min(COMMITTED.glob("needle-reference-*.jsonl.gz"))
    plain = tmp_path / packed.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    assert read_samples(plain) == read_samples(COMMITTED / plain.name)
    assert len(read_samples(plain)) == 600


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    packed = tmp_path / "one.jsonl.gz"
    for damage in (b"no gzip", gzip.compress(b"{}\n" * 1000)[:-20]):
        packed.write_bytes(damage)
        with pytest.raises(InputError, match=r"one\.jsonl\.gz: damaged"):
            read_samples(tmp_path / "one.jsonl")

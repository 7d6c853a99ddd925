from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from dsabench.machine.model_files import in_hub_cache, share_in_memory, weight_files

BYTES = 8 << 20


def weights(folder: Path, count: int) -> list[Path]:
    """Files on the disk and out of memory."""
    made = []
    for number in range(count):
        file = folder / f"model-{number}.safetensors"
        with file.open("wb") as opened:
            opened.write(random.Random(number).randbytes(BYTES))
            opened.flush()
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        made.append(file)
    return made


def test_what_was_read_is_in_memory(tmp_path: Path) -> None:
    files = weights(tmp_path, 2)
    if share_in_memory(files) > 0.5:
        pytest.skip("this file system keeps its files in memory")
    files[0].read_bytes()
    assert 0.35 < share_in_memory(files) < 0.75
    assert share_in_memory(files[:1]) == 1.0
    files[1].read_bytes()
    assert share_in_memory(files) == 1.0


def test_what_is_not_here_is_not_in_memory(tmp_path: Path) -> None:
    (tmp_path / "empty.safetensors").touch()
    assert share_in_memory([]) == share_in_memory([tmp_path / "empty.safetensors"]) == 0.0
    assert weight_files(str(tmp_path / "nowhere")) == []
    assert weight_files("org/name", {"HF_HOME": str(tmp_path)}) == []


@pytest.mark.parametrize("path", ["/a" * 150, "./name", "~/name", "../org/name"])
def test_a_path_is_no_repository(tmp_path: Path, path: str) -> None:
    """Its name as a folder of the cache could be longer than a file system takes."""
    assert in_hub_cache(path, "tokenizer.json", {"HF_HOME": str(tmp_path)}) == []


def test_weights_are_those_of_a_folder_or_of_the_newest_snapshot(tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--org--name" / "snapshots"
    for age, revision in ((2, "old"), (1, "new")):
        (cache / revision).mkdir(parents=True)
        for name in ("b.safetensors", "a.safetensors", "config.json"):
            (cache / revision / name).touch()
            os.utime(cache / revision / name, (0, 1000 - age))
    hub = {"HF_HOME": str(tmp_path)}
    new = [cache / "new" / "a.safetensors", cache / "new" / "b.safetensors"]
    assert weight_files("org/name", hub) == new == weight_files(str(cache / "new"))
    assert weight_files("org/name", {"HF_HUB_CACHE": str(tmp_path / "hub")}) == new
    assert in_hub_cache("org/name", "config.json", hub)[-1] == cache / "new" / "config.json"

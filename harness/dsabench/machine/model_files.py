"""A model's files on this machine: where they lie, and how much of its weights is in memory, so that no server has to read it from the disk."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

_LOOKS = 256


def hub_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The hub's cache folder, found as its client finds it."""
    home = environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def in_hub_cache(model: str, pattern: str, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Files of the snapshots of a repository that were downloaded; the oldest first. What is no `ORG/NAME` or `NAME` has none."""
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        return []
    found = (hub_cache(environ) / f"models--{model.replace('/', '--')}" / "snapshots").glob(f"*/{pattern}")
    return sorted(found, key=lambda file: file.stat().st_mtime)


def weight_files(model: str, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The safetensors of a folder, or of the newest snapshot in the hub's cache; empty where the model is not on this machine."""
    if Path(model).is_dir():
        return sorted(Path(model).glob("*.safetensors"))
    found = in_hub_cache(model, "*.safetensors", environ)
    return sorted(file for file in found if file.parent == found[-1].parent)


def share_in_memory(files: Sequence[Path]) -> float:
    """Share of their bytes that the page cache has, by a look at 256 random places; 0 where there are none, or the kernel does not say.

    A read that may not wait (RWF_NOWAIT) succeeds only where the page is there. `mincore` says so of files of this user alone.
    """
    ends = list(itertools.accumulate(file.stat().st_size for file in files))
    if not ends or not ends[-1]:
        return 0.0
    places = sorted(
        random.sample(range(ends[-1]), min(_LOOKS, ends[-1]))
    )  # other ones each time: a look may make the kernel read ahead
    found, begin = 0, 0
    for file, end in zip(files, ends, strict=True):
        with file.open("rb") as opened:
            found += sum(_is_there(opened.fileno(), place - begin) for place in places if begin <= place < end)
        begin = end
    return found / len(places)


def _is_there(descriptor: int, place: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT) == 1
    except OSError:  # EAGAIN: it would have to be read; EOPNOTSUPP: this file system cannot tell
        return False

"""Dataset files by path or address. What was downloaded once is kept, and a change of it is noticed."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from dsabench import rooms
from dsabench.errors import HttpFault, InputError
from dsabench.http import download
from dsabench.model.value import digest_of_file

KNOWN_SHA256 = {
    "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/"
    "ShareGPT_V3_unfiltered_cleaned_split.json": "35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4",
}
"""Address → checksum, where it is published."""


def find_file(place: str, sha256: str | None = None) -> Path:
    """The file at a path, or the kept copy of an address, which is downloaded the first time.

    The checksum must be `sha256`, else the published one, else that of the first download (kept beside the copy).

    Raises:
        InputError: no such file, no download, or another checksum; one line.

    """
    if urlsplit(place).scheme not in ("http", "https"):
        path = Path(place).expanduser()
        if not path.is_file():
            raise InputError(f"dataset {place}: no such file")
        if sha256 is not None:
            _check(place, digest_of_file(path), sha256)
        return path
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    folder = rooms.cache_folder() / "datasets" / name
    path, note = folder / (Path(urlsplit(place).path).name or "data"), folder / "sha256"
    expected = sha256 or KNOWN_SHA256.get(place)
    if not path.is_file():
        _download(place, path, note, expected or _noted(note))
        return path
    expected = expected or _noted(note)
    if expected is None:
        raise InputError(f"dataset {place}: {note} is missing, so the copy cannot be checked; delete {folder}")
    _check(f"{place} (kept at {path}; delete it to download again)", digest_of_file(path), expected)
    return path


def _noted(note: Path) -> str | None:
    return note.read_text().strip() if note.is_file() else None


def _download(address: str, path: Path, note: Path, expected: str | None) -> None:
    try:
        asyncio.run(download(address, path, sha256=expected, note=note))
    except HttpFault as fault:
        changed = ": the file changed" if fault.kind == "changed" else ""
        raise InputError(
            f"dataset {address}: {fault}{changed}; without a network name a file with --dataset-path (dataset_path in a "
            "config), or take random-ids, which needs none"
        ) from fault


def _check(place: str, found: str, expected: str) -> None:
    if found != expected:
        raise InputError(f"dataset {place}: its checksum is {found[:16]}…, expected {expected[:16]}…: the file changed")

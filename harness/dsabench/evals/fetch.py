"""The data file of an eval: given, cached, or fetched once. Its checksum is known, or taken from the first fetch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dsabench import rooms
from dsabench.errors import HttpFault, InputError
from dsabench.http import download
from dsabench.model.evals import GENERATED, EvalSpec
from dsabench.model.value import digest_of_file


def sha256_of(path: Path) -> str:
    """Of a file's bytes; of a folder over the names and sums of its files."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.csv") if file.is_file())
        listed = "".join(f"{file.relative_to(path).as_posix()} {sha256_of(file)}\n" for file in files)
        return hashlib.sha256(listed.encode()).hexdigest()
    return digest_of_file(path)


async def find_data(spec: EvalSpec, given: Path | None, key: str = "--data") -> Path | None:
    """The file to read; None for generated questions. `key` is what the user writes to give a file.

    Raises:
        InputError: the given file is not there; or there is no cached one and it cannot be fetched; or a checksum differs.

    """
    source = spec.dataset
    if given is not None:
        if spec.reader in GENERATED:
            raise InputError(f"{spec.name}: {key}: its questions are generated")
        if not given.exists():
            raise InputError(f"{key} {given}: no such file")
        return given
    if source.url is None or source.file is None:
        return None
    path = rooms.cache_folder() / "evals" / source.file
    if not path.is_file():
        about = f"licence {source.licence}" + (f"; {source.note}" if source.note else "")
        hint = f"give the file with {key} FILE ({about})"
        await _fetch(spec, source.url, path, hint)
    known = source.sha256 or _noted(path)
    found = sha256_of(path)
    if known is None:
        _note(path).write_text(found)
    elif found != known:
        raise InputError(
            f"{path}: sha256 is {found[:12]}…, not {known[:12]}… (truncated or changed): delete it, or give {key} FILE"
        )
    return path


def differs_from_known(spec: EvalSpec, given: Path) -> bool:
    """Whether a file that the user gave is another one than the published scores are of."""
    return spec.dataset.sha256 is not None and sha256_of(given) != spec.dataset.sha256


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _noted(path: Path) -> str | None:
    return _note(path).read_text().strip() if _note(path).is_file() else None


async def _fetch(spec: EvalSpec, url: str, path: Path, hint: str) -> None:
    try:
        await download(url, path, sha256=spec.dataset.sha256 or _noted(path), note=_note(path))
    except HttpFault as fault:
        raise InputError(f"{spec.name}: no data file, and {url} cannot be fetched ({fault}); {hint}") from fault

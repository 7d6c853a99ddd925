"""What a patch changed, kept beside the runtime's package so that every byte can be restored."""

from __future__ import annotations

import base64
import hashlib
import zlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationError

from dsabench.errors import InputError
from dsabench.model.value import Value

FILE_NAME = ".dsabench-patch.json"


def _require_inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is no file of the package")
    return name


InPackage = Annotated[str, AfterValidator(_require_inside)]
"""A path below the package; a manifest that names another is nobody's patch."""


def sha256(data: bytes) -> str:
    """Lower-case hex."""
    return hashlib.sha256(data).hexdigest()


class FileChange(Value):
    """One file. `before` is its whole content, compressed and in base64; None where there was none."""

    file: InPackage | Literal["../pyproject.toml"]
    before: str | None
    after_sha256: str
    link: str | None = None
    """What it pointed to, where it was a symbolic link (as some installers lay out a package), to a file or to nothing."""

    @classmethod
    def of(cls, file: str, before: bytes | None, after: bytes, link: str | None) -> FileChange:
        """A change from one content to another."""
        packed = None if before is None else base64.b64encode(zlib.compress(before, 9)).decode()
        return cls(file=file, before=packed, after_sha256=sha256(after), link=link)

    def original(self) -> bytes | None:
        """The content before the patch; None where the file is the patch's own."""
        return None if self.before is None else zlib.decompress(base64.b64decode(self.before))


class Manifest(Value):
    """A patch as applied. It is written before the first file is changed, and removed after the last is restored."""

    schema_version: Literal[1] = 1
    runtime_version: str
    tables: tuple[str, ...]
    """Names of the table files."""
    folders: tuple[InPackage, ...]
    """Folders that the patch made."""
    changes: tuple[FileChange, ...]


def read_manifest(package: Path) -> Manifest | None:
    """The manifest of a patched package, None where there is none.

    Raises:
        InputError: it cannot be read.

    """
    file = package / FILE_NAME
    if file.is_symlink():
        raise InputError(f"{file}: is a link, which no patch makes: remove it")
    try:
        manifest = Manifest.model_validate_json(file.read_bytes())
        for change in manifest.changes:  # what cannot be put back is said before anything is touched
            change.original()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, zlib.error) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else getattr(error, "strerror", error)
        raise InputError(
            f"{file}: {why}: it says what a patch changed; install sglang anew and remove this file"
        ) from error
    return manifest

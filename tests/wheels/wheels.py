"""The runtime's wheels on disk, found, fetched and unpacked."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Wheel:
    """One release of the runtime."""

    file: Path

    @property
    def version(self) -> str:
        return self.file.name.split("-")[1]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.file.read_bytes()).hexdigest()

    @contextmanager
    def unpacked(self, *, whole: bool = False) -> Iterator[Path]:
        """A folder with its Python files, or with all, for as long as the context is open."""
        with TemporaryDirectory(prefix="sglang-wheel-") as folder:
            with zipfile.ZipFile(self.file) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if whole or name.endswith(".py")])
            yield Path(folder)


def fetch(version: str, folder: Path) -> Wheel | None:
    """The wheel of a version, downloaded into the folder unless it is there; None where it cannot be had."""
    found = sorted(folder.glob(f"sglang-{version}-*.whl"))
    if not found:
        tags = ["--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux_2_34_x86_64"]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *tags, f"sglang=={version}", "-d", folder]
        subprocess.run(pip, check=False, timeout=300)
        found = sorted(folder.glob(f"sglang-{version}-*.whl"))
    return Wheel(found[0]) if found else None


def wheels_in(folder: Path) -> list[Wheel]:
    """The wheels of a folder, oldest first."""
    found = [Wheel(file) for file in folder.glob("sglang-*.whl")]
    if not found:
        sys.exit(f"{folder}: no sglang-*.whl; `pip download --no-deps sglang==VERSION` puts one there")
    return sorted(found, key=lambda wheel: [int(part) for part in wheel.version.split(".")[:3]])

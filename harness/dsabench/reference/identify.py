"""Prints, as one line of JSON, what the reference runtime is under the interpreter that runs this file by path.

Standard library alone, and nothing of the runtime is imported: `torch` may be missing, or take seconds to import.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path


def main() -> None:
    """Print {python, torch, version, wheel_hash}; what is not installed is null."""
    dsabench, dsakernels = find("dsabench"), find("dsakernels")
    facts = {"python": platform.python_version(), "torch": torch_version(), "version": None, "wheel_hash": None}
    if dsabench and dsakernels and (dsabench / "reference").is_dir():
        facts["version"] = version_of(dsabench / "__init__.py")
        facts["wheel_hash"] = hash_of([dsabench / "reference", dsakernels])
    sys.stdout.write(json.dumps(facts) + "\n")


def find(package: str) -> Path | None:
    """The folder of a package, found without importing it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def torch_version() -> str | None:
    """`2.13.0+cpu`."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def version_of(file: Path) -> str | None:
    """The literal assigned to `__version__`."""
    match = re.search(r'^__version__ = "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
    return match and match[1]


def hash_of(folders: list[Path]) -> str:
    """sha256 over the names and contents of all files, byte code left out; where the folders lie does not matter."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc":
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{folder.name}/{file.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


if __name__ == "__main__":
    main()

"""Prints versions of sglang and of the packages that it pins, as one line of JSON behind a marker.

Runs under sglang's own interpreter, so its text is passed with `-c`: standard library alone, nothing of sglang imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path

MARKER = "dsabench-facts:"
_LOOKED_AT = ("torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "sgl-deep-gemm", "transformers")


def main() -> None:
    """Print {python, sglang, torch_cuda, pins: {package: {wanted, installed}}}."""
    facts = {
        "python": platform.python_version(),
        "sglang": version_of("sglang"),
        "torch_cuda": torch_cuda(),
        "pins": {name: {"wanted": wanted, "installed": version_of(name)} for name, wanted in pins().items()},
    }
    sys.stdout.write(f"{MARKER}{json.dumps(facts)}\n")


def version_of(package: str) -> str | None:
    """The installed version."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def pins() -> dict[str, str]:
    """Packages whose exact version the installed sglang asks for."""
    try:
        wanted = importlib.metadata.requires("sglang") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*==\s*([A-Za-z0-9_.+!-]+)\s*$", requirement)
        name = match[1].lower().replace("_", "-") if match else None
        if match and name in _LOOKED_AT:
            found[name] = match[2]
    return found


def torch_cuda() -> str | None:
    """The CUDA that torch was built for, read from its files; importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    match = re.search(r"^cuda(?::[^=]*)? = '([\d.]+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None


if __name__ == "__main__":
    main()

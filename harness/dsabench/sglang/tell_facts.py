"""Prints what the sglang of the interpreter that runs this is, as one line of JSON behind a marker.

Runs under sglang's own interpreter, in a container or on another machine, so its text is passed with `-c`: standard
library alone, no import of dsabench. Its word says what is wanted: `identity` and `pins` are found without importing
sglang, which takes seconds, `parser` with it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

MARKER = "dsabench-facts:"
_ARGUMENTS = "sglang.srt.server_args"
_READ = ("srt", "kernels", "jit_kernel")
_PINNED = ("torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "sgl-deep-gemm", "transformers")
_PATCH = ".dsabench-patch.json"
"""What `dsabench emit --as patch` leaves beside the files that it changed (emit/manifest.py)."""
_PLUGINS = "sglang.srt.plugins"
_KERNELS = ("sglang-kernel", "sgl-kernel", "flashinfer-python", "triton", "tilelang", "deep-gemm", "transformers")


def main() -> None:
    """Print {version, wheel_hash, torch, python, packages} and, where asked for, {flags, variables} or {pins}."""
    facts: dict[str, Any] = {"python": platform.python_version(), "torch": version_of("torch")}
    spec = importlib.util.find_spec("sglang")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    facts |= {"version": version_of("sglang"), "wheel_hash": None, "packages": packages() | changes(folder)}
    if folder is not None:
        facts["wheel_hash"] = hash_of(folder)
        if "parser" in sys.argv[1:]:
            facts |= {"flags": flags(), "variables": variables(folder)}
    if "pins" in sys.argv[1:]:
        facts["pins"] = {name: {"wanted": wanted, "installed": version_of(name)} for name, wanted in pinned().items()}
    sys.stdout.write(f"{MARKER}{json.dumps(facts)}\n")


def packages() -> dict[str, str]:
    """Versions of the kernel packages that are installed, and the CUDA that torch was built for."""
    found = {name: version_of(name) for name in _KERNELS} | {"torch-cuda": torch_cuda()}
    return {name: version for name, version in found.items() if version is not None}


def changes(folder: Path | None) -> dict[str, str]:
    """What changes the installed sglang without a version of its own: tuned tables put in as a patch, and plugins."""
    found = {
        str(point.dist.metadata["Name"]): str(point.dist.version)
        for point in importlib.metadata.entry_points(group=_PLUGINS)
        if point.dist is not None
    }
    patch = patch_of(folder)
    return found if patch is None else found | {"sglang-patch": patch[:12]}


def patch_of(folder: Path | None) -> str | None:
    """sha256 of what a patch says of itself."""
    file = None if folder is None else folder / _PATCH
    return hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else None


def torch_cuda() -> str | None:
    """From the text of torch/version.py: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    if file is None or not file.is_file():
        return None
    match = re.search(r"^cuda\b[^=]*= '([\d.]+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
    return match and match[1]


def version_of(package: str) -> str | None:
    """The installed version."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def pinned() -> dict[str, str]:
    """Packages that decide its speed → the exact version that the installed sglang asks for."""
    try:
        wanted = importlib.metadata.requires("sglang") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*==\s*([A-Za-z0-9_.+!-]+)\s*$", requirement)
        name = match[1].lower().replace("_", "-") if match else None
        if match and name in _PINNED:
            found[name] = match[2]
    return found


def hash_of(folder: Path) -> str:
    """sha256 over the names and hashes of the wheel's files, or of the sources themselves in an editable install.

    What the installer adds to the wheel's RECORD (byte code, its own notes) has no part in it; a patch that the RECORD
    knows nothing of has.
    """
    files = importlib.metadata.files("sglang") or []
    listed = [f"{file} {file.hash.value}" for file in files if str(file).startswith("sglang/") and file.hash]
    if not listed:
        sources = ((file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in folder.rglob("*.py"))
        listed = [f"{file.relative_to(folder).as_posix()} {value}" for file, value in sources]
    patch = patch_of(folder)
    listed += [] if patch is None else [f"{_PATCH} {patch}"]
    return hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()


def flags() -> dict[str, dict[str, Any]]:
    """Option string → what it takes, its choices, and whether it still does something."""
    parser = argparse.ArgumentParser()
    importlib.import_module(_ARGUMENTS).ServerArgs.add_cli_args(parser)
    actions = parser._actions  # noqa: SLF001 (argparse has no other list of them)
    return {name: form_of(action) for action in actions for name in action.option_strings if name.startswith("--")}


def form_of(action: argparse.Action) -> dict[str, Any]:
    """One action of the parser."""
    kind = type(action).__name__
    return {
        "dest": action.dest,
        "takes": "nothing" if action.nargs == 0 else "values" if action.nargs in {"+", "*"} else "value",
        "choices": None if action.choices is None else sorted(map(str, action.choices)),
        "state": "no-op" if kind == "DeprecatedAction" else "alias" if kind.startswith("Deprecated") else None,
    }


def variables(folder: Path) -> list[str]:
    """Every SGLANG_ name in the sources."""
    files = [file for part in _READ for file in (folder / part).rglob("*.py")]
    found = (re.findall(r"\bSGLANG_[A-Z0-9_]+\b", file.read_text(encoding="utf-8", errors="ignore")) for file in files)
    return sorted({name for names in found for name in names})


if __name__ == "__main__":
    main()

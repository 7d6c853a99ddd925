"""Tuned tables as a wheel that sglang loads by itself: `pip install` it beside sglang 0.5.12 or later."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from dsabench.emit.manifest import sha256
from dsabench.emit.tables import File, keys_of, table_json
from dsabench.errors import StoreError

NAME = "sglang-dsa-tuned"
_PACKAGE = "sglang_dsa_tuned"
_PROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0+{digest}"
description = "Tuned DSA tables for sglang: {summary}"
requires-python = ">=3.10"
license = "Apache-2.0"

[project.entry-points."sglang.srt.plugins"]
dsa_tuned = "{package}.plugin:register"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""


def build_plugin(files: Sequence[File], out: Path) -> Path:
    """Write the wheel into a folder. Equal tables give an equal wheel, byte for byte.

    Raises:
        InputError: two tables with one key.
        StoreError: the folder cannot be written, or the build failed.

    """
    tables = dict(zip(keys_of(files), (table_json(file.table) for file in files), strict=True))
    sources = {name: _payload(name) for name in ("dsa_tuned.py", "plugin.py")}
    parts = [text for _, text in sorted({**tables, **sources}.items())]
    kinds = sorted({f"{file.table.kind} for {file.table.device}" for file in files})
    project = _PROJECT.format(
        name=NAME, digest=sha256("".join(parts).encode())[:12], package=_PACKAGE, summary=", ".join(kinds)
    )
    with tempfile.TemporaryDirectory(prefix="dsabench-plugin-") as name:
        folder = Path(name)
        package = folder / _PACKAGE
        (package / "dsa_tuned_configs").mkdir(parents=True)
        (folder / "pyproject.toml").write_text(project)
        (package / "__init__.py").write_text('"""Tuned DSA tables for sglang, applied at start-up."""\n')
        for file, text in sources.items():
            (package / file).write_text(text)
        for file, text in tables.items():
            (package / "dsa_tuned_configs" / file).write_text(text)
        return _build(folder, out)


def _payload(name: str) -> str:
    return resources.files("dsabench.emit.payload").joinpath(name).read_text(encoding="utf-8")


def _build(project: Path, out: Path) -> Path:
    made = project / "dist"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1577836800"}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    wheels = sorted(made.glob("*.whl"))
    if done.returncode or not wheels:
        raise StoreError(f"the wheel was not built: {done.stderr.strip().splitlines()[-1:] or 'no reason given'}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        target = out / wheels[0].name
        target.write_bytes(wheels[0].read_bytes())
    except OSError as error:
        raise StoreError(f"{out}: {error.strerror}: the wheel was not written") from error
    return target

"""Add a release: download or take its wheel, unpack it, install the few packages that it is read with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from packaging.requirements import Requirement

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE
from dsabench.model.value import digest_of_file
from dsabench.sglang.resolve.client import ArgumentProcess, source_of
from dsabench.sglang.resolve.releases import FACTS, FLAGS, AddedRelease, folder_of, runtimes_folder
from dsabench.sglang.tell_facts import variables

_SMALL_PACKAGES = ("msgspec", "pydantic", "pillow")
"""What SGLang's argument code and the configs of transformers need for real; all else is stubbed."""
_PIP_TIMEOUT_S = 900
_WHEEL_TAGS = ("--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux_2_34_x86_64")
"""The wheel's Python files are read, its libraries are left out, so its platform does not matter."""


def add_release(wanted: str, say: Callable[[str], None]) -> AddedRelease:
    """Unpack `sglang==VERSION` from the package index, or a wheel file, and install the few packages that it is read with.

    Raises:
        InputError: no such release or file, pip is missing or fails, or no space.

    """
    try:
        with TemporaryDirectory(prefix="dsabench-wheel-") as folder:
            wheel = _wheel_file(wanted, Path(folder), say)
            return _unpack(wheel, say)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{wanted}: cannot be added: {error}") from error


def _wheel_file(wanted: str, folder: Path, say: Callable[[str], None]) -> Path:
    if wanted.endswith(".whl"):
        file = Path(wanted)
        if not file.is_file():
            raise InputError(f"{wanted}: no such file")
        return file
    match = re.fullmatch(r"(?:sglang==)?v?(\d+(?:\.\w+)+)", wanted)
    if match is None:
        raise InputError(f"{wanted}: write sglang==VERSION, or the name of a wheel file")
    say(f"downloading the wheel of sglang {match[1]}")
    _pip("download", "--no-deps", *_WHEEL_TAGS, "--dest", str(folder), f"sglang=={match[1]}")
    return next(iter(folder.glob("sglang-*.whl")))


def _unpack(wheel: Path, say: Callable[[str], None]) -> AddedRelease:
    with zipfile.ZipFile(wheel) as archive:
        found = next(iter(importlib.metadata.distributions(name="sglang", path=[str(wheel)])), None)
        if found is None:
            raise InputError(f"{wheel}: not a wheel of sglang")
        packages = _packages(found.requires or [], say)
        say(f"unpacking {wheel.name}")
        folder = folder_of(found.version)
        with _whole(folder) as beside:
            added = AddedRelease(found.version, digest_of_file(wheel), packages, beside)
            archive.extractall(added.tree, [name for name in archive.namelist() if not name.endswith(".so")])
            _write_facts(added, say)
    return replace(added, folder=folder)


def _write_facts(release: AddedRelease, say: Callable[[str], None]) -> None:
    """Ask it for its flags, once, and note what it is."""
    say("asking its parser for its flags")
    process = ArgumentProcess(source_of(release), HARDWARE["h200"], flags=True)
    process.close()
    if process.failed is not None:
        raise InputError(f"sglang {release.version}: its argument code does not start: {process.failed}")
    flags = {"flags": process.flags, "variables": variables(release.tree / "sglang")}
    facts = {name: value for name, value in asdict(release).items() if name != "folder"}
    for name, content in ((FLAGS, flags), (FACTS, facts)):
        (release.folder / name).write_text(json.dumps(content) + "\n", encoding="utf-8")


def _packages(requirements: list[str], say: Callable[[str], None]) -> str | None:
    """The folder with transformers in the pinned version, made if it is missing."""
    pin = _transformers_pin(requirements)
    if pin is None:
        return None
    name = f"transformers-{pin}-cp{sys.version_info.major}{sys.version_info.minor}"
    folder = runtimes_folder() / "packages" / name
    if not folder.is_dir():
        say(f"installing transformers {pin} beside it (about 250 MB; other releases with the same pin share it)")
        with _whole(folder) as beside:
            _pip("install", "--target", str(beside), f"transformers=={pin}", *_SMALL_PACKAGES)
    return name


def _transformers_pin(lines: list[str]) -> str | None:
    """The version of transformers that the wheel's requirements pin."""
    for line in lines:
        wanted = Requirement(line)
        if wanted.name == "transformers" and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            return next((one.version for one in wanted.specifier if one.operator == "=="), None)
    return None


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then takes the place of `folder`; a failure leaves `folder` as it was."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(prefix=".adding-", dir=folder.parent))
    try:
        yield beside
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _pip(*words: str) -> None:
    if importlib.util.find_spec("pip") is None:  # as in an environment that uv made
        raise InputError(f"{sys.executable} has no pip, which gets the packages: {sys.executable} -m ensurepip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", words[0], "--quiet", *words[1:]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"pip {words[0]}: no end after {_PIP_TIMEOUT_S} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        last = re.sub(r"\(from versions: .*\)", "", said[-1]) if said else f"exit {done.returncode}"
        raise InputError(f"pip {words[0]}: {last.strip()}")

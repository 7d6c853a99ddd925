"""Find configs, sweeps and evals.

A given path comes first, then the working directory, the checkout, and the files in the wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

from dsabench.errors import InputError, nearest

_PACKAGE = Path(__file__).parent


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/dsabench`, else `~/.cache/dsabench`: what can be fetched or asked again."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "dsabench"


def folders(room: str) -> list[Path]:
    """The existing folders of a room, in order of precedence."""
    checkout = _PACKAGE.parent.parent
    candidates = [Path.cwd() / room]
    if (checkout / "pyproject.toml").is_file():
        candidates.append(checkout / room)
    candidates.append(_PACKAGE / "_rooms" / room)
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def names(room: str, below: Path = Path()) -> list[str]:
    """Every name in a room, or in a folder of it, without `.yaml`, sorted."""
    files = (file for folder in folders(room) for file in (folder / below).glob("*.yaml"))
    return sorted({(below / file.stem).as_posix() for file in files})


def find(room: str, name: str) -> Path:
    """The file of a name: a path, `ROOM/NAME.yaml`, or NAME.

    Raises:
        InputError: there is none. The message lists the nearest name and the known ones.

    """
    given = Path(name)
    if given.is_file():
        return given
    relative = Path(*given.parts[1:]) if given.parts[:1] == (room,) else given
    is_name = bool(relative.name) and not relative.is_absolute() and ".." not in relative.parts
    for folder in folders(room) if is_name else ():
        for candidate in (folder / relative, folder / f"{relative}.yaml"):
            if candidate.is_file():
                return candidate
    known = (names(room, relative.parent) if is_name else []) or names(room)
    near = nearest(relative.with_suffix("").as_posix(), known) if is_name else None
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(f"{name or repr(name)}: {_what_is_there(name)}{hint} (known {room}: {', '.join(known) or 'none'})")


def find_data(place: str) -> Path | None:
    """The file of a dataset: a path, or one that lies beside the configs, such as `configs/data/reports-192.jsonl`."""
    given = Path(place).expanduser()
    try:
        if given.exists() and not given.is_dir():
            return given
        return find("configs", place) if given.parts[:1] == ("configs",) else None
    except (InputError, OSError):  # a name may be too long for the file system
        return None


def _what_is_there(name: str) -> str:
    """Why the name is no file. `Path("")` is the working directory, so an empty name needs a message of its own."""
    if name and Path(name).is_dir():
        return "a folder, not a file"
    return "not a regular file" if name and Path(name).exists() else "no such file"

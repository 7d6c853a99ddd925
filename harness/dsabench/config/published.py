"""`sweeps/published/NAME.yaml` → a `PublishedRun`."""

from __future__ import annotations

from pathlib import Path

from dsabench import rooms
from dsabench.config.mistakes import parse_sections
from dsabench.config.yaml_source import read_yaml
from dsabench.errors import ConfigError
from dsabench.model.published import PublishedRun

_FOLDER = "published"


def published_file(name: str) -> Path | None:
    """The file that `name` means: a YAML file by its path, or the name of a published run; None for anything else."""
    given = Path(name)
    if given.suffix in (".yaml", ".yml") and given.is_file():
        return given
    if given.exists() or "#" in name:
        return None
    stem = given.name.removesuffix(".yaml") if given.parent.name in ("", _FOLDER) else ""
    known = published_names()
    return rooms.find("sweeps", f"{_FOLDER}/{stem}") if stem in known else None


def published_names() -> list[str]:
    """Every published run, sorted."""
    found = {file.stem for folder in rooms.folders("sweeps") for file in (folder / _FOLDER).glob("*.yaml")}
    return sorted(found)


def load_published(path: Path) -> PublishedRun:
    """One run.

    Raises:
        ConfigError: the first mistake of the file.

    """
    source = read_yaml(path)
    sections, found = parse_sections(source, "published")
    if found:
        raise min(found, key=lambda error: error.line or 0)
    run = PublishedRun(**sections)
    if run.name != path.stem:
        raise ConfigError(f"the file is {path.stem}.yaml; they must be equal", file=source.file, key="name")
    return run

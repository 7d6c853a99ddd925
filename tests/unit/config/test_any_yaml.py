"""Whatever stands in a file: it loads, or ends in one line that names a place inside the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dsabench import rooms
from dsabench.config.load import find_mistakes, load_study
from dsabench.config.yaml_file import KeyPath, read_yaml
from dsabench.errors import ConfigError

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SHIPPED = [rooms.find("configs", "local"), *(rooms.find("sweeps", name) for name in rooms.names("sweeps"))]

SNIPPETS = ["&a ", "*a ", "!!int ", "- ", "? ", ": ", "{", "}", "[", "]", '"', "'", "|\n", "\t", "---\n", "%YAML 1.2\n"]
SNIPPETS += ["name: a\n", "runtime: ", "sweeps: ", "axes: ", "null", "1e3", "\\ud800", "\x85", "\u2028", "\r", "<<: "]
TEXTS = st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=6), max_size=25).map("".join)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["local", "grid"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def prove_one_line_inside(path: Path) -> None:
    found = find_mistakes(path)
    for error in found:
        assert len(str(error).splitlines()) == 1
        assert str(error).isprintable()
        assert "pydantic" not in str(error)
        lines = len(Path(error.file).read_bytes().split(b"\n"))
        assert error.line is None or 1 <= error.line <= lines
    if found:
        with pytest.raises(ConfigError) as caught:
            load_study(path)
        assert len(str(caught.value).splitlines()) == 1
    else:
        load_study(path)


@QUICK
@given(TEXTS | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
@example("a: \x0b")
@example("!!int {a: 1}")
@example("!!str [a]")
def test_any_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    prove_one_line_inside(path)


@QUICK
@given(st.binary(max_size=80))
def test_any_bytes(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    prove_one_line_inside(path)


def paths_in(data: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths_in(child, (*path, key))


def replaced(data: Any, path: KeyPath, value: Any) -> Any:
    changed = json.loads(json.dumps(data))
    node = changed
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return changed


@QUICK
@given(st.data())
def test_any_value_in_any_place_of_the_shipped_config(tmp_path: Path, data: st.DataObject) -> None:
    shipped = dict(read_yaml(SHIPPED[0]).data)
    shipped["sweeps"] = [*shipped["sweeps"][1:], dict(read_yaml(SHIPPED[1]).data)]  # type: ignore[index, misc]
    place = data.draw(st.sampled_from(list(paths_in(shipped))))
    changed = replaced(shipped, place, data.draw(VALUES))
    path = tmp_path / "f.yaml"
    path.write_text(yaml.safe_dump(changed, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    prove_one_line_inside(path)


@QUICK
@given(st.data())
def test_any_damage_to_the_text_of_the_shipped_files(tmp_path: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(SHIPPED))
    text = file.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    path = tmp_path / file.name
    path.write_text(text[:start] + data.draw(TEXTS) + text[end:], encoding="utf-8", errors="surrogatepass")
    found = find_mistakes(path)
    for error in found:
        assert error.line is None or 1 <= error.line <= len(path.read_bytes().split(b"\n"))
        assert len(str(error).splitlines()) == 1
        assert str(error).isprintable()

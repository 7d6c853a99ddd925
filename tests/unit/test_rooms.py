from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench import rooms
from dsabench.errors import InputError

CHECKOUT = Path(rooms.__file__).parents[2]


def test_a_path_wins_over_the_working_directory_and_that_over_the_checkout(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rooms.find("configs", "local") == CHECKOUT / "configs" / "local.yaml"
    assert rooms.find("configs", "configs/local.yaml") == CHECKOUT / "configs" / "local.yaml"
    here = tmp_path / "configs" / "local.yaml"
    here.parent.mkdir()
    here.write_text("mine")
    assert rooms.find("configs", "local").resolve() == here
    other = tmp_path / "local.yaml"
    other.write_text("given")
    assert rooms.find("configs", str(other)) == other


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match="did you mean local"):
        rooms.find("configs", "locl")


def test_of_a_folder_below_a_room_its_own_names_are_told() -> None:
    with pytest.raises(InputError, match=r"did you mean recipes/pp-cp\?.*recipes/pd, "):
        rooms.find("configs", "recipes/ppcp")
    with pytest.raises(InputError, match="known configs: b200, "):
        rooms.find("configs", "no-such-folder/ppcp")


@pytest.mark.parametrize(
    "escape", ["../configs/local", "/etc/nonexistent", "../../etc/hostname.yaml", "../sweeps/mha_threshold"]
)
def test_names_do_not_wander(escape) -> None:
    with pytest.raises(InputError):
        rooms.find("configs", escape)


@pytest.mark.parametrize("name", ["kernels", "evals"])
def test_an_installed_package_wins_over_a_room_of_the_same_name(tmp_path, name) -> None:
    package = tmp_path / "site" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("INSTALLED = True\n")
    code = f"import sys; sys.path[:0] = [{str(CHECKOUT)!r}]; sys.path.append({str(tmp_path / 'site')!r})\n"
    code += f"import {name}; assert {name}.INSTALLED; import dsabench, dsakernels\n"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CHECKOUT)
    assert not (CHECKOUT / name / "__init__.py").exists()


def test_nothing_tells_a_reader_to_install_dsabench_by_name() -> None:
    """On the public package index that name is another project's."""
    rooms_read = ("harness", "kernels", "docs", ".github")
    files = [CHECKOUT / "README.md", *(file for room in rooms_read for file in (CHECKOUT / room).rglob("*"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.suffix in {".py", ".md", ".yml"}}
    by_name = re.compile(r"install (-\S+ )*['\"]?dsabench(?! @)\b|default: \"dsabench")
    assert [str(file) for file, text in texts.items() if by_name.search(text)] == []


def test_a_dataset_beside_the_configs_is_found_from_any_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = "configs/data/reports-192.jsonl"
    assert rooms.find_data(place) == CHECKOUT / place
    (tmp_path / "configs/data").mkdir(parents=True)
    (tmp_path / place).write_text("{}")
    assert rooms.find_data(place) == Path(place), "one's own comes first"


@pytest.mark.parametrize(
    "place", ["configs/data", "configs/../configs/data/reports-192.jsonl", "data/reports-192.jsonl", "", "x" * 5000]
)
def test_what_is_no_dataset_is_not_found(place, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rooms.find_data(place) is None

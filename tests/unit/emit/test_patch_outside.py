"""A patch touches nothing outside the package that it was given, whatever links and manifests say."""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from dsabench.emit import patch as patching
from dsabench.emit.manifest import FILE_NAME
from dsabench.emit.patch import apply_patch, plan_patch, revert_patch
from dsabench.emit.touch import LOADER, TABLES
from dsabench.emit.tree import find_tree
from dsabench.errors import InputError, StoreError
from unit.emit.made import as_file, made_table, made_tree

STORMS = 300
THRESHOLD = made_table("mha_threshold", {"form": "threshold", "max_tokens": 1024})


def everything(folder: Path) -> dict[str, tuple[str, bytes | str | None, int]]:
    """Path → what it is, its content or what it points to, and its mode; links are not followed."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            mode = path.lstat().st_mode
            if path.is_symlink():
                found[str(path.relative_to(folder))] = ("link", str(path.readlink()), 0)
            elif path.is_dir():
                found[str(path.relative_to(folder))] = ("folder", None, mode)
            else:
                found[str(path.relative_to(folder))] = ("file", path.read_bytes(), mode)
    return found


def patch(package: Path, *tables) -> bool:
    return apply_patch(plan_patch(find_tree(package), [as_file(table) for table in tables or (made_table(),)]))


@pytest.mark.parametrize("victim", ["../../outside/victim", "/etc/victim", "../victim", "srt/../../victim", "", "."])
def test_a_manifest_that_names_another_file_is_refused(tmp_path, victim):
    package = made_tree(tmp_path / "site")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/victim").write_text("mine")
    patch(package)
    manifest = json.loads((package / FILE_NAME).read_text())
    for place in ("changes", "folders"):
        evil = {**manifest, "folders": [victim]} if place == "folders" else manifest
        if place == "changes":
            evil = {**manifest, "changes": [{**manifest["changes"][0], "file": victim}, *manifest["changes"][1:]]}
        (package / FILE_NAME).write_text(json.dumps(evil))
        before = everything(tmp_path)
        for act in (lambda: revert_patch(find_tree(package)), lambda: patch(package, THRESHOLD)):
            with pytest.raises(InputError, match=r"is no file of the package.*install sglang anew"):
                act()
        assert everything(tmp_path) == before


@pytest.mark.parametrize("folder", ["srt/layers/attention", TABLES])
def test_a_folder_that_leads_outside_is_refused(tmp_path, folder):
    package, outside = made_tree(tmp_path / "site"), tmp_path / "outside"
    place = package / folder
    if place.exists():
        place.rename(outside)
    else:
        outside.mkdir()
    place.symlink_to(outside)
    before = everything(tmp_path)
    with pytest.raises(InputError, match=f"leads to {outside}, outside the package"):
        patch(package)
    assert everything(tmp_path) == before


def test_a_folder_that_became_a_link_after_the_patch_is_not_followed(tmp_path):
    package, outside = made_tree(tmp_path / "site"), tmp_path / "outside"
    patch(package)
    (package / "srt/layers/attention").rename(outside)
    (package / "srt/layers/attention").symlink_to(outside)
    before = everything(tmp_path)
    with pytest.raises(InputError, match="outside the package"):
        revert_patch(find_tree(package))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", [LOADER, f"{TABLES}/{made_table().file_name}"])
def test_a_link_to_nothing_is_there_again(tmp_path, name):
    package = made_tree(tmp_path / "site")
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).symlink_to("/nowhere/at all")
    before = everything(tmp_path)
    patch(package)
    assert not (package / name).is_symlink()
    assert revert_patch(find_tree(package))
    assert everything(tmp_path) == before
    assert not revert_patch(find_tree(package))


@pytest.mark.parametrize("target", ["/nowhere", "../../outside.json"])
def test_a_manifest_that_is_a_link_is_nobodys(tmp_path, target):
    package = made_tree(tmp_path / "site")
    (tmp_path / "outside.json").write_text("{}")
    (package / FILE_NAME).symlink_to(target)
    before = everything(tmp_path)
    for act in (lambda: patch(package), lambda: revert_patch(find_tree(package))):
        with pytest.raises(InputError, match="is a link, which no patch makes"):
            act()
    assert everything(tmp_path) == before


def test_storms_of_links_and_manifests_touch_nothing_outside(tmp_path):
    """Random links to files, folders and nothing, and manifests that were tampered with: outside stays as it was, and what
    was patched and reverted is as before.
    """
    patched = 0
    for seed in range(STORMS):
        rng, home = random.Random(seed), tmp_path / str(seed)
        package, outside = made_tree(home / "site"), home / "outside"
        outside.mkdir()
        for name in ("victim.py", "dsa_tuned.py", "folder/inner.json"):
            (outside / name).parent.mkdir(exist_ok=True)
            (outside / name).write_text(f"# {name}\n")
        for _ in range(rng.randint(0, 4)):
            link_somewhere(rng, package, outside)
        before, safe = everything(home / "site"), everything(outside)
        try:
            did = patch(package, *rng.sample([made_table(), THRESHOLD], rng.randint(1, 2)))
        except (InputError, StoreError):
            did = False
        assert everything(outside) == safe, seed
        if not did:
            assert everything(home / "site") == before, seed
            continue
        patched += 1
        if rng.random() < 0.5:
            tamper(rng, package, outside)
            with suppress(InputError, StoreError):
                revert_patch(find_tree(package))
            assert everything(outside) == safe, seed
        else:
            assert revert_patch(find_tree(package)), seed
            # What a killed run left under the hidden name is cleared away.
            kept = {name: what for name, what in before.items() if not name.endswith(".dsabench-new")}
            assert everything(home / "site") == kept, seed
            assert everything(outside) == safe, seed
    assert STORMS / 4 < patched < STORMS


def link_somewhere(rng: random.Random, package: Path, outside: Path) -> None:
    """One more link: a file or folder moved outside and linked, a name of the patch's taken, a link within the package."""
    names = ["srt/server_args.py", "srt/layers/attention/nsa_backend.py", "srt/layers/attention", "srt/layers", "srt"]
    added = [LOADER, TABLES, f"{TABLES}/{made_table().file_name}", FILE_NAME, "srt/layers/attention/__pycache__"]
    targets = ["/nowhere", str(outside / "victim.py"), str(outside / "folder"), str(outside / "dsa_tuned.py")]
    hidden = f"srt/layers/attention/{beside(LOADER)}"
    kind = rng.choice(("moved", "taken", "within"))
    place = package / rng.choice(names if kind != "taken" else [*added, hidden])
    if kind == "taken":
        if not os.path.lexists(place) and place.parent.is_dir():
            place.symlink_to(rng.choice(targets))
        return
    if not os.path.lexists(place) or place.is_symlink():
        return
    home = outside if kind == "moved" else package
    new = home / f"moved-{rng.randrange(10**6)}"
    place.rename(new)
    place.symlink_to(new if rng.random() < 0.5 else os.path.relpath(new, place.parent.resolve()))


def beside(name: str) -> str:
    """The hidden name of a file that is about to be put in place."""
    return patching._beside(Path(name)).name


def tamper(rng: random.Random, package: Path, outside: Path) -> None:
    """What somebody else may have done to a patched package: a manifest that names others' files, or a link."""
    file = package / FILE_NAME
    manifest = json.loads(file.read_text())
    change = rng.choice(manifest["changes"])
    victim = rng.choice(
        [
            "../../outside/victim.py",
            str(outside / "victim.py"),
            "../outside/victim.py",
            "srt/../../../outside/victim.py",
        ]
    )
    match rng.randrange(4):
        case 0:
            change["file"] = victim
        case 1:
            manifest["folders"] = [*manifest["folders"], str(Path(victim).parent)]
        case 2:
            change["link"] = victim  # a link is put where the file was: what it points to stays
        case _:
            place = package / rng.choice(["srt/layers/attention", TABLES])
            if place.is_dir() and not place.is_symlink():
                place.rename(package / "elsewhere")
                place.symlink_to(outside)
    file.write_text(json.dumps(manifest))

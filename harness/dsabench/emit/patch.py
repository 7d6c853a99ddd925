"""Tuned tables written into the runtime's own package: planned in memory, written atomically, reverted to the byte."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dsabench.emit.loader import is_untouched, kinds_read, loader_of
from dsabench.emit.manifest import FILE_NAME, FileChange, Manifest, read_manifest, sha256
from dsabench.emit.one_at_a_time import alone
from dsabench.emit.package_data import with_tables_listed
from dsabench.emit.tables import File, keys_of, table_json
from dsabench.emit.touch import LOADER, TABLES, touch
from dsabench.emit.tree import Tree
from dsabench.errors import InputError, StoreError

_PROJECT = "../pyproject.toml"
_MARK = b"dsa_tuned"
"""In every file of the runtime that the patch changes."""

State = Literal["clean", "applied", "other tables", "incomplete", "changed since"]


@dataclass(frozen=True, slots=True)
class Patch:
    """What the tables make of a tree. `before` and `after` map a path, relative to the package, to its content."""

    tree: Tree
    tables: tuple[str, ...]
    before: Mapping[str, bytes | None]
    after: Mapping[str, bytes]
    notes: tuple[str, ...] = ()
    """Tables that were measured with another version, a line each."""

    def diff(self) -> str:
        """As `diff -u` and git print it."""
        lines: list[str] = []
        for file, after in sorted(self.after.items()):
            old = (self.before[file] or b"").decode().splitlines(keepends=True)
            name = os.path.normpath(f"sglang/{file}")
            source = "/dev/null" if self.before[file] is None else f"a/{name}"
            lines += difflib.unified_diff(old, after.decode().splitlines(keepends=True), source, f"b/{name}")
        return "".join(lines)


def plan_patch(tree: Tree, files: Sequence[File]) -> Patch:
    """The changes that these tables make to an unpatched tree, or to what a patched one was before.

    Raises:
        InputError: a kind that the version lacks, a source of unknown form, two tables with one key, or another process
            is at it.

    """
    with alone(tree.package):  # half of another's patch read as the runtime's own would be planned around
        patch = _plan(tree, files)
        _require_inside(tree, patch.after)
        return patch


def _plan(tree: Tree, files: Sequence[File]) -> Patch:
    manifest = read_manifest(tree.package)
    if manifest is not None:
        ours = [change for change in manifest.changes if not _is_replaced(tree, manifest, change)]
        tree = replace(tree, originals={change.file: change.original() for change in ours})
    names = keys_of(files)
    kinds: set[str] = {file.table.kind for file in files}
    touched = touch(tree, kinds)
    before: dict[str, bytes | None] = {one.file: one.before for one in touched}
    after = {one.file: one.after for one in touched}
    tables = {f"{TABLES}/{file.table.file_name}": table_json(file.table).encode() for file in files}
    if (own := tree.read(LOADER)) is None:
        tables[LOADER] = loader_of(kinds).encode()
    elif TABLES.rpartition("/")[2].encode() not in own:
        raise InputError(f"{tree.package / LOADER}: is there already, and reads no tables")
    elif lacking := sorted(kinds - kinds_read(own)):
        if not is_untouched(own):
            raise InputError(
                f"{tree.package / LOADER}: is there already, changed, and reads no tables of {', '.join(lacking)}"
            )
        tables[LOADER] = loader_of(kinds | kinds_read(own)).encode()
    for name, content in tables.items():
        if (old := tree.read(name)) != content:
            before[name], after[name] = old, content
    if tree.project is not None:
        listed = tree.read(_PROJECT) or b""
        if (changed := with_tables_listed(listed, f"{TABLES}/*.json")) != listed:
            before[_PROJECT], after[_PROJECT] = listed, changed
    _compile(after)
    return Patch(tree, tuple(sorted(names)), before, after, tuple(_notes(tree, files)))


def _notes(tree: Tree, files: Sequence[File]) -> Iterator[str]:
    for file in files:
        measured = file.table.evidence.versions.get("sglang")
        if measured is not None and measured != str(tree.version):
            yield f"{file.table.file_name} was measured with sglang {measured}, this is {tree.version}"


def state_of(tree: Tree, patch: Patch | None = None) -> State:
    """How the tree stands to a patch, or to whatever patch it has."""
    manifest = read_manifest(tree.package)
    if manifest is None:
        return "clean" if patch is None or patch.after else "applied"
    if changed_since(tree):
        return "changed since"
    if {_standing(tree.package, change) for change in manifest.changes} != {"after"}:
        return "incomplete"
    if patch is None:
        return "applied"
    wanted = {file: sha256(content) for file, content in patch.after.items()}
    return "applied" if {one.file: one.after_sha256 for one in manifest.changes} == wanted else "other tables"


def changed_since(tree: Tree) -> list[str]:
    """The patched files that are neither as the patch left them nor as they were."""
    manifest = read_manifest(tree.package)
    if manifest is None:
        return []
    others = [one for one in manifest.changes if _standing(tree.package, one) == "other"]
    return [one.file for one in others if not _is_replaced(tree, manifest, one)]


def _is_replaced(tree: Tree, manifest: Manifest, change: FileChange) -> bool:
    """Whether a file of the runtime came with another version since. An installer leaves behind what only the patch added;
    what it brought is not ours to touch.
    """
    if change.before is None or manifest.runtime_version == str(tree.version):
        return False
    file = tree.package / change.file
    return not file.is_file() or _MARK not in file.read_bytes()


def apply_patch(patch: Patch) -> bool:
    """Write the patch; other tables of an earlier one are replaced. False where all of it is there already.

    Raises:
        InputError: somebody changed a patched file since, another process is at it, or the tree is read-only.
        StoreError: a file cannot be written; what was written is taken back.

    """
    with alone(patch.tree.package):
        if state_of(patch.tree, patch) == "applied":
            return False
        require_writable(patch.tree, patch.after)
        _require_inside(patch.tree, patch.after)
        _restore(patch.tree)
        _require_as_planned(patch)
        folders = _missing_folders(patch)
        changes = tuple(
            FileChange.of(file, patch.before[file], after, _link_of(patch.tree.package / file))
            for file, after in sorted(patch.after.items())
        )
        manifest = Manifest(
            runtime_version=str(patch.tree.version), tables=patch.tables, folders=folders, changes=changes
        )
        try:
            _write(patch.tree.package / FILE_NAME, (manifest.model_dump_json(indent=1) + "\n").encode())
            for file, content in patch.after.items():  # all that needs room, before anything changes
                _stage(patch.tree.package / file, content)
            # a server that starts meanwhile, or after a crash, never asks a loader that is not there
            for file in sorted(patch.after, key=lambda name: patch.before[name] is not None):
                _swap(patch.tree.package / file)
        except OSError as error:
            with suppress(InputError, StoreError):
                _restore(patch.tree)
            raise StoreError(f"{error.filename}: {error.strerror}: the patch was not applied") from error
        return True


def revert_patch(tree: Tree) -> bool:
    """Put every byte back. False where nothing is patched.

    Raises:
        InputError: somebody changed a patched file since, another process is at it, or the tree is read-only.
        StoreError: a file cannot be written; run it again to go on.

    """
    with alone(tree.package):
        return _restore(tree)


def require_writable(tree: Tree, files: Iterable[str]) -> None:
    """Whether this user may write where the files are, or are to be: a read-only mount, another user's installation.

    Raises:
        InputError: not in one of the folders.

    """
    for file in (FILE_NAME, *files):
        folder = (tree.package / file).parent
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK):
            raise InputError(f"{folder}: this user may not write here, or it is read-only")


def _require_inside(tree: Tree, files: Iterable[str]) -> None:
    """Whether every file lies in the package itself: a folder that is a link may be another environment's.

    Raises:
        InputError: one of them lies behind a link that leads outside.

    """
    for name in files:
        file = tree.package / name
        place = file.parent.resolve()
        if name != _PROJECT and tree.package not in (place, *place.parents):
            raise InputError(f"{file.parent}: leads to {place}, outside the package: patch the package that is there")


def _require_as_planned(patch: Patch) -> None:
    for name, before in patch.before.items():
        file = patch.tree.package / name
        if (file.read_bytes() if file.is_file() else None) != before:
            raise InputError(f"{file}: changed since the patch was planned: run it again")


def _restore(tree: Tree) -> bool:
    manifest, leftover = read_manifest(tree.package), _beside(tree.package / FILE_NAME)
    if manifest is not None:
        files = [change.file for change in manifest.changes]
        require_writable(tree, files)
        _require_inside(tree, (*files, *manifest.folders))
    if changed := changed_since(tree):
        version = "" if manifest is None else manifest.runtime_version
        raise InputError(
            f"{tree.package / changed[0]}: changed since it was patched: undo that edit, or install sglang {version} anew"
        )
    try:
        if leftover.exists():
            leftover.unlink()
        if manifest is None:
            return False
        _put_back(tree.package, manifest.changes)
        for folder in sorted(manifest.folders, key=len, reverse=True):
            place = tree.package / folder
            # A table that somebody put there stays.
            if place.is_dir() and not place.is_symlink() and not any(place.iterdir()):
                place.rmdir()
        (tree.package / FILE_NAME).unlink()
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}: revert again to go on") from error
    return True


def _put_back(package: Path, changes: Sequence[FileChange]) -> None:
    """First the runtime's own files, which ask the patch's, and before the first of them all that needs room."""
    back = [(change, original) for change in changes if (original := change.original()) is not None]
    for change, _ in back:
        _beside(package / change.file).unlink(missing_ok=True)
    back = [(change, original) for change, original in back if _standing(package, change) == "after"]
    try:
        for change, original in back:
            _stage(package / change.file, original, change.link)
    except OSError:
        for change, _ in back:
            _beside(package / change.file).unlink(missing_ok=True)
        raise
    for change, _ in back:
        _swap(package / change.file)
    for change in changes:
        if change.before is None:
            _take_away(package / change.file, change.link)


def _take_away(file: Path, link: str | None) -> None:
    """Where a link to nothing was, it is again."""
    with suppress(NotADirectoryError):  # a file stands where our folder was to be
        if link is None or _link_of(file) != link:
            file.unlink(missing_ok=True)
        _beside(file).unlink(missing_ok=True)
        if link is not None and not file.is_symlink():
            file.symlink_to(link)
    _forget_compiled(file)


def _standing(package: Path, change: FileChange) -> Literal["before", "after", "other"]:
    file = package / change.file
    content = file.read_bytes() if file.is_file() else None
    if content is not None and sha256(content) == change.after_sha256:
        return "after"
    return "before" if content == change.original() else "other"


def _write(file: Path, content: bytes) -> None:
    """A reader sees the old or the new file, and a hard link elsewhere keeps the old."""
    _stage(file, content)
    _swap(file)


def _stage(file: Path, content: bytes, link: str | None = None) -> None:
    """Written beside and synced, ready to be renamed; a link where `link` says what to."""
    beside = _beside(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        if link is not None:
            beside.symlink_to(link)
            return
        with beside.open("xb") as stream:  # never through a link of that name
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if file.exists():
            shutil.copymode(file, beside)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error  # a full disk names none


def _swap(file: Path) -> None:
    _beside(file).replace(file)


def _link_of(file: Path) -> str | None:
    return str(file.readlink()) if file.is_symlink() else None


def _beside(file: Path) -> Path:
    """In the same folder, under a name no longer than any; tables' names may differ in their last letters only."""
    return file.with_name(f".{file.name[:40]}-{sha256(file.name.encode())[:8]}.dsabench-new")


def _forget_compiled(file: Path) -> None:
    """What an interpreter made of a module that is gone."""
    folder = file.parent / "__pycache__"
    if folder.is_symlink():
        return
    for compiled in folder.glob(f"{file.stem}.*.pyc") if file.suffix == ".py" else ():
        compiled.unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or not there
        folder.rmdir()


def _missing_folders(patch: Patch) -> tuple[str, ...]:
    parents = {
        parent for file in patch.after for parent in Path(file).parents if parent.parts and ".." not in parent.parts
    }
    return tuple(sorted(str(parent) for parent in parents if not (patch.tree.package / parent).exists()))


def _compile(after: Mapping[str, bytes]) -> None:
    for file, content in after.items():
        if file.endswith(".py"):
            compile(content, file, "exec", dont_inherit=True)

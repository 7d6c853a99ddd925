"""Tables as commits on a branch of a checkout of the runtime, with the text of a pull request. Pushes nothing."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dsabench.emit.constant import constant_patch, constant_test
from dsabench.emit.loader import ENVIRON, kinds_read, loader_test_of, with_variable
from dsabench.emit.patch import Patch, plan_patch
from dsabench.emit.tables import File, keys_of, table_json
from dsabench.emit.touch import LOADER, TABLES
from dsabench.emit.tree import SHIPPED, Tree, find_reference_tree, find_tree
from dsabench.emit.upstream_test import upstream_test
from dsabench.errors import InputError, StoreError
from dsabench.model.tuned_table import RatioRule


@dataclass(frozen=True, slots=True)
class Branch:
    """What was committed. `base` is the commit that the branch starts at."""

    repository: Path
    name: str
    base: str
    version: str
    """Of the checkout."""
    commits: tuple[str, ...]
    files: tuple[str, ...]
    """As the repository names them."""
    changed_lines: int
    """Added and removed, tests included."""
    is_tables_alone: bool = False
    """Of a runtime that reads tables already."""
    notes: tuple[str, ...] = ()
    """Tables that were measured with another version, a line each."""

    def patch(self) -> bytes:
        """The commits as `git am` takes them."""
        return run_git(self.repository, "format-patch", "--stdout", f"{self.base}..{self.commits[-1]}").encode() + b"\n"


Commit = tuple[dict[str, bytes], str]
"""Content by path below the package (`../…` above it), and the message."""


def commit_tables(checkout: Path, files: Sequence[File], branch: str) -> Branch:
    """Commit code and tables on a new branch from HEAD, in a worktree of its own: the checkout is left as it is.

    Raises:
        InputError: no git checkout, no such name for a branch, or it exists, git does not know who commits, the patch is
            refused, or all of it is there already.
        StoreError: git failed.

    """
    if all(file.table.runtime == "reference" for file in files):
        return _commit_reference_tables(checkout, files, branch)
    patches: list[Patch] = []

    def commits(tree: Tree, repository: Path) -> list[Commit]:
        patch = plan_patch(tree, files)
        patches.append(patch)
        code = {name: content for name, content in patch.after.items() if not name.startswith(TABLES)}
        data = {name: content for name, content in patch.after.items() if name.startswith(TABLES)}
        if LOADER in code:
            kinds_there = kinds_read(code[LOADER])
            code |= with_variable(tree.read(ENVIRON), code[LOADER])
            code |= _unit_test(tree, repository, "attention/test_dsa_tuned.py", loader_test_of(kinds_there))
        kinds = sorted({file.table.kind for file in files})
        devices = ", ".join(sorted({file.table.device for file in files}))
        return [(code, f"DSA: read tuned tables ({', '.join(kinds)})"), (data, f"DSA: tuned tables for {devices}")]

    made = _commit_on_branch(find_tree(checkout), branch, commits)
    [patch] = patches
    return replace(made, is_tables_alone=all(name.startswith(TABLES) for name in patch.after), notes=tuple(patch.notes))


def commit_constant(checkout: Path, rule: RatioRule, measured: str, branch: str) -> Branch:
    """The same for a rule as numbers in the source, with the unit test of its boundary. `measured` is for its comment.

    Raises:
        InputError: as of `commit_tables`.
        StoreError: git failed.

    """

    def commits(tree: Tree, repository: Path) -> list[Commit]:
        code = constant_patch(tree, rule, measured)
        code |= _unit_test(tree, repository, "attention/test_dsa_prefill_auto.py", constant_test(tree, rule))
        return [(code, "DSA: choose the sparse prefill kernel by batch on Hopper with fp8 KV")]

    return _commit_on_branch(find_tree(checkout), branch, commits)


def _commit_reference_tables(checkout: Path, files: Sequence[File], branch: str) -> Branch:
    """The tables alone, among those that the reference runtime ships."""
    contents = {
        f"{SHIPPED}/{name}": table_json(file.table).encode() for name, file in zip(keys_of(files), files, strict=True)
    }
    devices = ", ".join(sorted({file.table.device for file in files}))

    def commits(tree: Tree, _: Path) -> list[Commit]:
        new = {name: content for name, content in contents.items() if tree.read(name) != content}
        return [(new, f"Ship tuned tables of the reference runtime for {devices}")]

    made = _commit_on_branch(find_reference_tree(checkout), branch, commits)
    return replace(made, is_tables_alone=True)


def _unit_test(tree: Tree, repository: Path, name: str, text: str) -> dict[str, bytes]:
    """Its content by path below the package; nothing where the checkout has no place for it."""
    test = upstream_test(repository, name, text)
    return {} if test is None else {os.path.relpath(test[0], tree.package): test[1]}


def _commit_on_branch(tree: Tree, branch: str, commits: Callable[[Tree, Path], list[Commit]]) -> Branch:
    repository = Path(run_git(tree.package, "rev-parse", "--show-toplevel", what="is not in a git checkout"))
    for name in ("user.name", "user.email"):
        run_git(repository, "config", name, what=f"git config {name} is not set: who commits?")
    if not _says_yes(repository, "check-ref-format", "--branch", branch):
        raise InputError(f"--branch {branch}: git allows no branch of that name")
    if _says_yes(repository, "rev-parse", "-q", "--verify", f"refs/heads/{branch}"):
        raise InputError(f"{repository}: there is a branch {branch} already; --branch names another")
    base = run_git(repository, "rev-parse", "-q", "--verify", "HEAD", what="has no commit yet")
    with _worktree(repository, branch, base) as folder:
        package = folder / tree.package.relative_to(repository)
        project = package.parent / "pyproject.toml"
        inside = Tree(package, tree.version, project if project.is_file() else None)
        wanted = [(contents, message) for contents, message in commits(inside, folder) if contents]
        made = tuple(_commit(inside, contents, message) for contents, message in wanted)
        if not made:
            raise InputError(f"{repository}: these tables are in its HEAD already")
        counted = run_git(folder, "diff", "--numstat", base, made[-1])
        lines = sum(int(number) for row in counted.splitlines() for number in row.split()[:2] if number.isdigit())
        named = {os.path.normpath(tree.package.relative_to(repository) / name) for one, _ in wanted for name in one}
    return Branch(repository, branch, base, str(tree.version), made, tuple(sorted(named)), lines)


def _commit(tree: Tree, contents: dict[str, bytes], message: str) -> str:
    for name, content in contents.items():
        file = tree.package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        run_git(tree.package, "add", "-f", "--", str(file.resolve()))
    run_git(tree.package, "commit", "-q", "-m", message)
    return run_git(tree.package, "rev-parse", "HEAD")


@contextmanager
def _worktree(repository: Path, branch: str, base: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsabench-pr-") as name:
        folder = Path(name).resolve() / "tree"
        run_git(repository, "worktree", "add", "-q", "-b", branch, str(folder), base)
        with ExitStack() as failed:
            failed.callback(run_git, repository, "branch", "-q", "-D", branch)
            try:
                yield folder
            finally:
                run_git(repository, "worktree", "remove", "--force", str(folder))
            failed.pop_all()


def _says_yes(repository: Path, *words: str) -> bool:
    return subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False).returncode == 0


def run_git(folder: Path, *words: str, what: str | None = None) -> str:
    """What git prints in a folder.

    Raises:
        InputError: git failed and `what` says whose mistake that is.
        StoreError: git failed otherwise.

    """
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        if what is not None:
            raise InputError(f"{folder}: {what}")
        said = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise StoreError(f"git {words[0]}: {said[0]}")
    return done.stdout.strip()

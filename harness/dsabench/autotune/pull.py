"""The pull request with the tables: against a checkout, or against a scratch one of the reference runtime."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import dsabench
from dsabench.autotune.job import Job, Outcome
from dsabench.autotune.stages import StageRecord
from dsabench.emit.pr_body import request_tables
from dsabench.emit.pull_request import run_git
from dsabench.emit.tables import read_committed
from dsabench.emit.tree import SHIPPED
from dsabench.errors import StoreError
from dsabench.model.value import digest
from dsabench.reporting.numbers import show_count


def request_pull(job: Job, tables: Sequence[Path], measured: str | None, before: StageRecord | None) -> Outcome:
    """Make branch, commits and text, unless the same tables have them already. Pushes nothing.

    Raises:
        InputError: the checkout is none, or a table may not be sent.
        StoreError: git failed, or the folder cannot be written.

    """
    files = read_committed([str(path) for path in tables], allow_simulated=False)
    checkout = job.tree
    if checkout is None and files[0].table.runtime != "reference":
        return Outcome("skipped", "name a checkout of sglang with --tree")
    contents = "\n".join(path.read_text() for path in tables)
    inputs = digest(f"{contents}\n{measured}\n{checkout}")
    folder = job.own / "pr"
    if before is not None and before.inputs == inputs and all(Path(name).is_file() for name in before.files):
        return Outcome(before.state, before.says, inputs=inputs, files=before.files)
    shutil.rmtree(folder, ignore_errors=True)
    made = request_tables(checkout or _scratch(folder / "checkout"), files, f"dsa-tuned-{inputs[:8]}", measured)
    text = made.write(folder)
    where = "a scratch checkout" if checkout is None else str(checkout)
    says = f"{made.branch.name}: {show_count(len(made.branch.commits), 'commit')}, {made.branch.changed_lines} changed lines on {where}"
    return Outcome("done", says, inputs=inputs, files=(str(text),))


def _scratch(folder: Path) -> Path:
    """A repository with the tables that the installed reference runtime ships."""
    package, copy = Path(dsabench.__file__).parent, folder / "harness" / "dsabench"
    try:
        shutil.copytree(package / SHIPPED, copy / SHIPPED)
        shutil.copy2(package / "__init__.py", copy)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}: the scratch checkout was not written") from error
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "dsabench"),
        ("config", "user.email", "dsabench@localhost"),
        ("add", "-A"),
        ("commit", "-q", "-m", f"Tables of the reference runtime of dsabench {dsabench.__version__}"),
    ):
        run_git(folder, *words)
    return folder

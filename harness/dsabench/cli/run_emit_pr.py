"""From tables and a checkout to a branch and the text of a pull request."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import dsabench
from dsabench.cli.run_compare import compared, side_of
from dsabench.emit.fit import require_emittable
from dsabench.emit.pr_body import body_of
from dsabench.emit.pull_request import commit_patch
from dsabench.emit.served import served_lines
from dsabench.emit.tables import read_tables
from dsabench.errors import InputError, StoreError


@dataclass(frozen=True, slots=True)
class PullRequestOptions:
    """The command line of `emit pr`."""

    tables: tuple[str, ...]
    runtime: Path
    branch: str
    out: Path
    allow_simulated: bool
    as_json: bool
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Results of servers without and with the tables, the first with the first."""
    metrics: tuple[str, ...] = ()


def emit_pr(options: PullRequestOptions) -> None:
    """Commit, write the text, print what to type."""
    files = read_tables(options.tables)
    measured = _measured(options)
    for file in files:
        require_emittable(file.table, "sglang", allow_simulated=options.allow_simulated)
    branch = commit_patch(options.runtime, files, options.branch)
    drawn = [figure for file in files if (figure := file.path.with_suffix(".svg")).is_file()]
    figures = [Path(f"figure-{number}.svg") for number, _ in enumerate(drawn, 1)]
    text = options.out / "pull-request.md"
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for figure, source in zip(figures, drawn, strict=True):
            (options.out / figure).write_bytes(source.read_bytes())
        text.write_text(body_of(branch, files, figures, dsabench.__version__, measured))
    except OSError as error:
        raise StoreError(f"{options.out}: {error.strerror}: the text was not written") from error
    title = f"[DSA] Tuned defaults for {', '.join(sorted({file.table.device for file in files}))}"
    commands = [
        shlex.join(["git", "-C", str(branch.repository), "push", "-u", "origin", branch.name]),
        f"cd {shlex.quote(str(branch.repository))} && "
        + shlex.join(
            ["gh", "pr", "create", "--head", branch.name, "--title", title, "--body-file", str(text.resolve())]
        ),
    ]
    if options.as_json:
        facts = {"branch": branch.name, "base": branch.base, "commits": branch.commits, "body": str(text)}
        print(json.dumps({**facts, "commands": commands}, indent=1))
        return
    print(f"{branch.name}: {len(branch.commits)} commits on {branch.base[:12]} in {branch.repository}")
    print(f"{text}" + (f", with {len(figures)} figures to attach" if figures else ""))
    print("Nothing was pushed. To open the pull request:")
    for command in commands:
        print(f"  {command}")


def _measured(options: PullRequestOptions) -> str | None:
    """The verdicts of each before and after, and the commands that print them."""
    if len(options.before) != len(options.after):
        raise InputError("--before and --after go together: results of servers without and with the tables")
    pairs = tuple(zip(options.before, options.after, strict=True))
    if not pairs:
        return None
    servers = served_lines(record for name in (*options.before, *options.after) for record in side_of(name).records)
    return "\n\n".join(["\n".join(servers), *(_compared(pair, options.metrics) for pair in pairs)])


def _compared(pair: tuple[str, str], metrics: tuple[str, ...]) -> str:
    words = [word for metric in metrics for word in ("--metric", metric)]
    command = shlex.join(["dsabench", "compare", *pair, *words, "--across-environments"])
    return "\n".join([compared(pair, list(metrics), across=True), "", "```console", command, "```"])

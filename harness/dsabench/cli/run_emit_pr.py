"""From tables and a checkout to a branch and the text of a pull request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

import dsabench
from dsabench.cli.run_compare import compared, side_of
from dsabench.emit.constant import constant_script
from dsabench.emit.constant_text import constant_body
from dsabench.emit.pr_body import TEXT, PullRequest, request_tables
from dsabench.emit.pull_request import commit_constant
from dsabench.emit.served import as_points, served_lines
from dsabench.emit.tables import File, read_committed, read_delivered
from dsabench.errors import InputError


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
    form: Literal["tables", "constant"] = "tables"
    kernels: Path | None = None
    """Folder of the kernel times, for a constant; None looks where the tables' evidence says."""
    times: tuple[Path, ...] = ()
    """What tune_dsa_prefill.py printed: times with launches."""


def emit_pr(options: PullRequestOptions) -> None:
    """Commit, write the text, print what to type."""
    if options.form == "constant":
        files = read_delivered(options.tables, allow_simulated=options.allow_simulated)
        made = _constant(options, files, _measured(options))
    else:
        files = read_committed(options.tables, allow_simulated=options.allow_simulated)
        made = request_tables(options.runtime, files, options.branch, _measured(options))
    made.write(options.out)
    _show(options, made)


_SCRIPT = "tune_dsa_prefill.py"


def _constant(options: PullRequestOptions, files: Sequence[File], measured: str | None) -> PullRequest:
    from dsabench.tuners.shared_rule import find_shared_rule, read_case, read_launched

    cases = [read_case(file, options.kernels) for file in files]
    found = find_shared_rule(cases, read_launched(options.times))
    *others, last = sorted(effect.table.heads_per_rank for effect in found.effects)
    heads = f"{', '.join(map(str, others))} and {last}" if others else str(last)
    devices = " and ".join(sorted({one.table.device.removeprefix("NVIDIA_").replace("_", " ") for one in cases}))
    branch = commit_constant(options.runtime, found.rule, f"{devices} with {heads} heads per rank", options.branch)
    script = constant_script(found.rule)
    text = constant_body(
        branch,
        found.rule,
        found.effects,
        elsewhere=found.elsewhere,
        script=_SCRIPT,
        dsabench=dsabench.__version__,
        measured=measured,
    )
    facts: dict[str, JsonValue] = {
        "rule": found.rule.model_dump(),
        "excess": {str(effect.table.heads_per_rank): effect.excess for effect in found.effects},
        "changed_lines": branch.changed_lines,
    }
    title = "[DSA] Choose flashmla_sparse or flashmla_kv by batch on Hopper with fp8 KV"
    return PullRequest(branch, title, {TEXT: text.encode(), _SCRIPT: script.encode()}, facts)


def _show(options: PullRequestOptions, made: PullRequest) -> None:
    branch, text = made.branch, options.out / TEXT
    words = ["gh", "pr", "create", "--head", branch.name, "--title", made.title, "--body-file", str(text.resolve())]
    commands = [
        shlex.join(["git", "-C", str(branch.repository), "push", "-u", "origin", branch.name]),
        f"cd {shlex.quote(str(branch.repository))} && {shlex.join(words)}",
    ]
    if options.as_json:
        facts = {"branch": branch.name, "base": branch.base, "commits": branch.commits, "body": str(text)}
        print(json.dumps({**facts, **made.facts, "commands": commands}, indent=1))
        return
    count = f"{len(branch.commits)} commit" + "s" * (len(branch.commits) != 1)
    print(f"{branch.name}: {count} on {branch.base[:12]} in {branch.repository}, {branch.changed_lines} changed lines")
    attached = [name for name in made.files if name != TEXT]
    print(f"{text}" + (f", with {', '.join(attached)} to attach" if attached else ""))
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
    return "\n\n".join([as_points(servers), *(_compared(pair, options.metrics) for pair in pairs)])


def _compared(pair: tuple[str, str], metrics: tuple[str, ...]) -> str:
    words = [word for metric in metrics for word in ("--metric", metric)]
    command = shlex.join(["dsabench", "compare", *pair, *words, "--across-environments"])
    return "\n".join([compared(pair, list(metrics), across=True), "", "```console", command, "```"])

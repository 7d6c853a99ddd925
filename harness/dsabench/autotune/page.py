"""The final page: what was won at which price, what was refused and why, what to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsabench.autotune.job import why_not_default
from dsabench.autotune.proof import effects_in_words
from dsabench.emit.pr_body import rule_in_words
from dsabench.errors import StoreError
from dsabench.reporting.numbers import show_dollars
from dsabench.reporting.verdict_markdown import in_markdown
from dsabench.results.journal import FILE_NAME, read_journal
from dsabench.results.places import find_journals
from dsabench.results.study_records import gpu_seconds
from dsabench.results.tuned_tables import read_table
from dsabench.runtimes.kinds import make_runtime
from dsabench.tuners.of_sweep import objective_verdicts

if TYPE_CHECKING:
    from dsabench.autotune.job import Job
    from dsabench.autotune.workflow import AutotuneResult

PAGE = "autotune.md"


def write_page(job: Job, result: AutotuneResult) -> None:
    """Write it beside the stages.

    Raises:
        StoreError: disk full or read-only.

    """
    file = job.own / PAGE
    try:
        file.write_text(page_of(job, result), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the page was not written") from error


def page_of(job: Job, result: AutotuneResult) -> str:
    """The page as Markdown."""
    config = job.config
    total = sum(one.seconds for one in result.stages)
    lines = [f"# {in_markdown(config.name)}: autotune", "", f"`{job.command}`", "", "## Won", ""]
    lines += _won(result)
    lines += ["", "## Refused", ""]
    refused = [
        f"- **{one.name}**: {in_markdown(one.says)}" for one in result.stages if one.state in ("refused", "failed")
    ]
    lines += [*_passed_over(job, result), *refused] or ["Nothing."]
    lines += ["", "## Price", "", "| stage | state | time | measured in this run | outcome |", "|---|---|--:|--:|---|"]
    lines += [
        f"| {one.name} | {one.state} | {one.seconds:.0f} s | {one.measured or '–'} | {in_markdown(one.says)} |"
        for one in result.stages
    ]
    lines += ["", f"{total:.0f} s in all runs together{_gpu_hours(job)}."]
    if result.proofs:
        lines += ["", "## At the server"]
    for proof in result.proofs:
        lines += ["", proof.markdown]
    lines += ["", "## Next", ""]
    lines += [f"- {step.partition(': ')[0]}: `{step.partition(': ')[2]}`" for step in result.next_steps] or [
        "Nothing is left."
    ]
    return "\n".join(lines) + "\n"


def _gpu_hours(job: Job) -> str:
    """Such as `, 3.2 GPU-hours ($8) in boots and trials`; empty on a CPU."""
    config = job.config
    journals = find_journals(job.folder) if any(job.folder.rglob(FILE_NAME)) else []
    records = [record for journal in journals for record in read_journal(journal).records]
    hours = gpu_seconds(records, make_runtime(config.runtime).gpus) / 3600
    price = "" if config.price_per_gpu_hour is None else f" ({show_dollars(config.price_per_gpu_hour * hours)})"
    return f", {hours:.1f} GPU-hours{price} in boots and trials" if hours else ""


def _passed_over(job: Job, result: AutotuneResult) -> list[str]:
    """A setting that was faster than the winner, and why it is not the winner."""
    sweep, winner = result.sweep, result.winner
    if sweep is None or sweep.best is None or winner is None or winner.spec == sweep.best.spec:
        return []
    effects = effects_in_words(objective_verdicts(job.config, sweep))
    why = why_not_default(job.config, sweep, sweep.best.spec) or "not better than the default"
    return [f"- `{sweep.best.label}`: {in_markdown(effects)}. {in_markdown(why)}"]


def _won(result: AutotuneResult) -> list[str]:
    lines = []
    if (winner := result.winner) is not None:
        lines.append(f"- Setting: `{winner.label}`: {in_markdown(effects_in_words(winner.verdicts))}")
    for path in result.tables:
        table = read_table(path)
        proof = next((in_markdown(one.effects) for one in result.proofs if one.file.path == path), None)
        shown = "not compared at the server" if proof is None else f"at the server: {proof}"
        lines.append(f"- Table `{path.name}`: {in_markdown(rule_in_words(table.rule))}; {shown}")
    if result.pull_request is not None:
        lines.append(f"- Pull request: `{result.pull_request}`")
    return lines or ["Nothing: the default stays."]

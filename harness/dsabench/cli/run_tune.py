"""From the order of a tune to its table, and what is said of it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dsabench.config.load import load_study
from dsabench.emit.pr_body import rule_in_words
from dsabench.emit.tables import write_table
from dsabench.microbench.table import TABLE_NAME
from dsabench.model.tuned_table import choose
from dsabench.reporting.choice_plot import draw_choice
from dsabench.results.journal import FILE_NAME, read_journal
from dsabench.tuners.kernel_table import KernelStudy, study_kernels
from dsabench.tuners.observed import of_kernels, of_servers
from dsabench.tuners.target import target_of


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """The command line of `tune flashmla-auto`."""

    config: str
    kernels: Path
    study: Path | None
    seed: int
    out: Path | None
    as_json: bool

    @property
    def command(self) -> str:
        """What measures and tunes it again."""
        words = ["dsabench", "tune", "flashmla-auto", self.config, "--kernels", str(self.kernels)]
        study = ["--study", str(self.study)] if self.study else []
        return shlex.join([*words, *study, *(["--seed", str(self.seed)] if self.seed else [])])


def tune_kernels(order: KernelOrder) -> None:
    """Fit, write the table, say what came out."""
    config = load_study(order.config)
    target = target_of(config)
    seen = of_kernels(order.kernels / TABLE_NAME, target)
    records = read_journal(order.study / FILE_NAME).records if order.study is not None else ()
    servers = of_servers(records, target)
    study = study_kernels(config, target, seen, servers, seed=order.seed, command=order.command)
    path = write_table(order.out or Path("results") / config.name / "tables", study.table)
    plot = _draw(study, path.with_suffix(".svg"))
    if order.as_json:
        print(json.dumps({"table": str(path), "plot": str(plot), **_facts(study)}, indent=1))
    else:
        _show(study, path)


def _draw(study: KernelStudy, file: Path) -> Path:
    batches = [(*point.step, point.us["flashmla_kv"] / point.us["flashmla_sparse"]) for point in study.points]
    rule, table = study.tuned.chosen.rule, study.table

    def takes_sparse(new: int, kv: int) -> bool:
        return choose(rule, new_tokens=new, kv_tokens=kv) == "flashmla_sparse"

    title = f"{table.device}, {table.heads_per_rank} heads, {table.kv_cache_dtype}"
    return draw_choice(batches, takes_sparse, title, file)


def _facts(study: KernelStudy) -> dict[str, object]:
    tuned = study.tuned
    forms = [
        {
            "form": fit.family.name,
            "parameters": fit.family.parameters,
            "regret": fit.regret,
            "held_out": fit.held_out,
            "worst_against_shipped": fit.worst,
            "rule": json.loads(fit.rule.model_dump_json()),
        }
        for fit in tuned.fits
    ]
    return {
        "chosen": tuned.chosen.family.name,
        "forms": forms,
        "regret_shipped": tuned.regret_shipped,
        "regret_best_static": tuned.regret_static,
        "best_static": tuned.static,
        "gain_over_shipped": {"value": tuned.gain, "ci_low": tuned.interval.low, "ci_high": tuned.interval.high},
        "noise": tuned.noise,
        "shapes": tuned.shapes,
        "chunks": [{"chunked_prefill_size": c.chunk, "less_time": c.gain, "regret": c.regret} for c in study.chunks],
    }


def _show(study: KernelStudy, path: Path) -> None:
    tuned, console = study.tuned, Console()
    console.print(f"{tuned.shapes} shapes, times known to ±{tuned.noise:.1%}; time lost against the faster kernel:")
    table = Table("form of the rule", "numbers", "cross-validated", "held out", "worst vs shipped", box=None)
    for fit in tuned.fits:
        mark = " ←" if fit is tuned.chosen else ""
        held = "" if fit.held_out is None else f"{fit.held_out:.2%}"
        name, count = fit.family.name + mark, str(fit.family.parameters)
        table.add_row(name, count, f"{fit.regret:.2%}", held, f"{fit.worst:+.2%}")
    table.add_row("what is shipped", "", f"{tuned.regret_shipped:.2%}", "", "")
    table.add_row(f"best static ({tuned.static})", "", f"{tuned.regret_static:.2%}", "", "")
    console.print(table)
    low, high = tuned.interval
    console.print(
        f"gain over what is shipped: {tuned.gain:+.1%} (95 % interval {low:+.1%} … {high:+.1%}), attention alone"
    )
    for chunk in study.chunks:
        size = chunk.chunk or "none"
        console.print(f"  chunked_prefill_size {size}: {chunk.gain:+.1%} of its time saved, regret {chunk.regret:.2%}")
    console.print(f"rule: {rule_in_words(tuned.chosen.rule)}")
    console.print(str(path), soft_wrap=True, highlight=False, markup=False)

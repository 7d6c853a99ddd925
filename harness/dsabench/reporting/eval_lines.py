"""The result of an eval in the lines that users of its original know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dsabench.evals.summarise import Tally, original_metrics
from dsabench.model.evals import EvalTask
from dsabench.model.record import Metric

Metrics = Mapping[str, Metric]


def result_lines(task: EvalTask, counted: Tally, metrics: Metrics) -> list[str]:
    """Lines for people, as the harness that the id names prints them, with its own grader; our own form for other ids."""
    return list(_FORMS.get(task.harness_id, _own)(task, counted.as_original(), original_metrics(metrics)))


def _value(metrics: Metrics, name: str) -> float:
    return metrics[name].value if name in metrics else float("nan")


def _few_shot(_task: EvalTask, _counted: Tally, metrics: Metrics) -> Iterator[str]:
    yield f"Accuracy: {_value(metrics, 'score'):.3f}"
    yield f"Invalid: {_value(metrics, 'no_answer'):.3f}"
    yield f"Latency: {_value(metrics, 'duration_s'):.3f} s"
    yield f"Output throughput: {_value(metrics, 'output_throughput_tok_s'):.3f} token/s"


def _run_eval(task: EvalTask, counted: Tally, metrics: Metrics) -> Iterator[str]:
    if task.repeat == 1:
        yield f"Total latency: {_value(metrics, 'duration_s'):.3f} s"
        yield f"Score: {_value(metrics, 'score'):.3f}"
        return
    yield f"Repeat: {task.repeat}, mean: {_value(metrics, 'score'):.3f}"
    yield f"Scores: {[f'{score:.3f}' for score in counted.passes()]}"


def _nemo_skills(task: EvalTask, _counted: Tally, metrics: Metrics) -> Iterator[str]:
    """The table of `ns summarize_results`; ± is the spread of the passes, not the error of the mean."""
    k, spread = task.repeat, metrics.get("score_spread_of_runs")
    shown = f"{100 * _value(metrics, 'score'):.2f}%" + (f" ± {100 * spread.value:.2f}%" if spread else "")
    rows = [(f"pass@1[avg-of-{k}]" if k > 1 else "pass@1", shown)]
    rows += [
        (f"{name}@{k}", f"{100 * metrics[f'{name}_at.{k}'].value:.2f}%")
        for name in ("majority", "pass")
        if f"{name}_at.{k}" in metrics
    ]
    tokens, seconds = (_whole(metrics, name) for name in ("completion_tokens.mean", "duration_s"))
    no_answer = f"{100 * _value(metrics, 'no_answer'):.2f}%"
    header = ("evaluation_mode", "num_entries", "avg_tokens", "gen_seconds", "symbolic_correct", "no_answer")
    table = [header, *((mode, str(task.num_questions), tokens, seconds, share, no_answer) for mode, share in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    yield from (f"| {line} |" if i != 1 else f"|-{line}-|" for i, line in enumerate(lines))


def _whole(metrics: Metrics, name: str) -> str:
    return str(int(metrics[name].value)) if name in metrics else "–"


def _subjects(_task: EvalTask, counted: Tally, metrics: Metrics) -> Iterator[str]:
    for subject, mean in counted.groups().items():
        yield f"subject: {subject}, #q:{mean.questions}, acc: {mean.value:.3f}"
    yield f"Total latency: {_value(metrics, 'duration_s'):.3f}"
    yield f"Average accuracy: {_value(metrics, 'score'):.3f}"


def _grid(task: EvalTask, counted: Tally, metrics: Metrics) -> Iterator[str]:
    """Lengths down, depths across."""
    cells = {tuple(name.split("w-")): mean.value for name, mean in counted.groups().items()}
    depths = list(dict.fromkeys(depth for _, depth in cells))
    yield "words \\ depth " + " ".join(f"{depth:>6}" for depth in depths)
    for length in dict.fromkeys(length for length, _ in cells):
        row = (cells.get((length, depth)) for depth in depths)
        yield f"{length:>13} " + " ".join("     –" if value is None else f"{value:6.2f}" for value in row)
    yield from _own(task, counted, metrics)


def _own(_task: EvalTask, _counted: Tally, metrics: Metrics) -> Iterator[str]:
    yield f"Score: {_value(metrics, 'score'):.3f}, no answer: {_value(metrics, 'no_answer'):.3f}"
    yield f"Latency: {_value(metrics, 'duration_s'):.3f} s"


_FORMS: dict[str, Callable[[EvalTask, Tally, Metrics], Iterator[str]]] = {
    "sglang-few-shot-gsm8k": _few_shot,
    "sglang-run-eval-gsm8k": _run_eval,
    "sglang-run-eval-gpqa": _run_eval,
    "sglang-run-eval-aime25": _run_eval,
    "nemo-skills-aime25": _nemo_skills,
    "sgl-eval-aime25": _nemo_skills,
    "sgl-eval-gpqa": _nemo_skills,
    "nemo-skills-gpqa": _nemo_skills,
    "sglang-bench-mmlu": _subjects,
    "dsabench-needle-1": _grid,
}

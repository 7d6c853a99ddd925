"""What servers were measured, in words: what a reader must know before taking their gain for a deployment's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsabench.model.record import Record, Trial
from dsabench.model.runtime import LANES, RANDOM_WEIGHTS, SIMULATED


def served_lines(records: Iterable[Record]) -> list[str]:
    """Sentences on each kind of server among the records."""
    lines = (line for record in records if isinstance(record.trial, Trial) for line in _lines(record, record.trial))
    return list(dict.fromkeys(lines))


def as_points(sentences: Iterable[str]) -> str:
    """As a list in Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _lines(record: Record, trial: Trial) -> Iterator[str]:
    gpus = sorted({gpu.name for gpu in record.environment.hardware.gpus})
    runtime = record.environment.runtime
    yield f"{runtime.kind} {runtime.version} on {', '.join(gpus) or 'no GPU'}, model {trial.runtime.model}."
    own = record.resolved.get("dsabench")
    part = own.get("slice") if isinstance(own, dict) else None
    if isinstance(part, dict):
        groups = ", ".join(f"{name} {part[name]}" for name in ("dp", "ep") if name in part)
        whole = part.get("layers") == part.get("of_layers")
        fewer = "" if whole else f", in fewer than the {part.get('of_layers')} layers of the whole"
        yield (
            f"That model is what one of {part.get('gpus')} GPUs computes ({groups}){fewer}: "
            "between settings of one rank it compares, a deployment's gain it does not tell."
        )
    if trial.runtime.knobs.get("cuda_graph") is False:
        yield f"{record.study}: without CUDA graphs, so that the host's share of a step is larger than in service."
    if (lanes := next((label for label in record.labels if label.endswith(LANES)), None)) is not None:
        yield f"Measured as {lanes} of one host, which share its memory bandwidth, PCIe and power."
    if RANDOM_WEIGHTS in record.labels:
        yield "Random weights: these are speeds, nothing of them says anything on accuracy."
    if SIMULATED in record.labels:
        yield "Simulated: accept lengths were pinned, or hits are those of random weights."

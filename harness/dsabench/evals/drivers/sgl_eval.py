"""sgl-eval (0.1.3): `sgl-eval run NAME --base-url …`."""

from __future__ import annotations

from dsabench.errors import InputError
from dsabench.evals.drivers.program import Commission, Errands

_NAMES = {"aime25": "aime25", "gpqa": "gpqa", "gsm8k": "gsm8k", "gsm8k-clean": "gsm8k", "mmlu": "mmlu"}


def sgl_eval(commission: Commission, /) -> Errands:
    """One run into the folder; its scores are its own harness's, whatever our eval of that name asks."""
    spec, target = commission.spec, commission.target
    if spec.name not in _NAMES:
        raise InputError(f"driver sgl-eval: it has no {spec.name} (it has: {', '.join(_NAMES)})")
    name, sampling = _NAMES[spec.name], spec.sampling
    words = [commission.program, "run", name, "--base-url", f"{target.base_url}/v1", "--model", target.model]
    words += ["--n-repeats", str(spec.repeat), "--max-tokens", str(sampling.max_tokens)]
    words += ["--temperature", str(sampling.temperature), "--top-p", str(sampling.top_p)]
    words += ["--thinking" if spec.prompt.thinking else "--no-thinking", "--num-threads", str(spec.concurrency)]
    words += ["--out-dir", str(commission.folder)]
    if spec.num_examples is not None:
        words += ["--num-examples", str(spec.num_examples)]
    if commission.data is not None:
        words += ["--from-dataset", str(commission.data)]
    return Errands((tuple(words),), "sgl_eval_*/output-rs*.jsonl", f"sgl-eval-{name}")

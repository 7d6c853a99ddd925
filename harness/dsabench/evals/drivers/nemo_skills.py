"""NeMo-Skills (0.7.0): `ns prepare_data NAME`, then `ns eval --benchmarks=NAME:REPEAT …`, as SGLang's documentation runs it."""

from __future__ import annotations

import os
from pathlib import Path

from dsabench.errors import InputError
from dsabench.evals.ask import thinking_keyword
from dsabench.evals.drivers.program import Commission, Errands

_NAMES = {"aime25": "aime25", "gpqa": "gpqa", "gsm8k-clean": "gsm8k", "mmlu": "mmlu"}


def nemo_skills(commission: Commission, /) -> Errands:
    """Fetch the data, then run against the server, which it does not start."""
    spec, target = commission.spec, commission.target
    if spec.name not in _NAMES:
        raise InputError(f"driver nemo-skills: it has no {spec.name} (it has: {', '.join(_NAMES)})")
    if commission.data is not None:
        raise InputError("driver nemo-skills: --data: it fetches its own")
    name, sampling = _NAMES[spec.name], spec.sampling
    words = [commission.program, "eval", f"--benchmarks={name}:{spec.repeat}", "--server_type=sglang"]
    words += [f"--model={target.model}", f"--server_address={target.base_url}/v1"]
    words += [f"--output_dir={commission.folder}", f"++inference.temperature={sampling.temperature}"]
    words += [f"++inference.top_p={sampling.top_p}", f"++inference.tokens_to_generate={sampling.max_tokens}"]
    if spec.prompt.thinking:
        words.append(f"++chat_template_kwargs.{thinking_keyword(spec.prompt.thinking)}=true")
    if spec.num_examples is not None:
        words.append(f"++max_samples={spec.num_examples}")
    prepare = (commission.program, "prepare_data", name)
    return Errands(
        (prepare, tuple(words)),
        f"eval-results/{name}/output-rs*.jsonl",
        # Our own aime25 asks and grades the same; of the others it has its own prompts.
        "nemo-skills-aime25" if name == "aime25" else f"nemo-skills-{name}",
        {
            "NEMO_SKILLS_DISABLE_UNCOMMITTED_CHANGES_CHECK": "1",
            # Its steps are shell lines that begin with `python`: its own environment's.
            "PATH": os.pathsep.join(
                (str(Path(commission.program).absolute().parent), os.environ.get("PATH", os.defpath))
            ),
        },
    )

"""A slice on disk: config.json for the runtime, slice.yaml for a sweep."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from dsabench.errors import InputError
from dsabench.runtimes.sglang.slice import Slice

_HEAD = """# One GPU of {model} on {gpus} GPUs ({strategy}), {layers} layers, random weights: every number is labelled so.
{notes}
#
# To see what would run: `dsabench sweep {file} --dry-run`. Name the interpreter that has sglang in runtime.launch.
"""


def write_slice(piece: Slice, strategy: str, out_dir: Path) -> None:
    """Write both files and say so.

    Raises:
        InputError: the folder cannot be written.

    """
    config, sweep = out_dir / "config.json", out_dir / "slice.yaml"
    notes = "\n".join(f"# - {note}" for note in piece.notes)
    head = _HEAD.format(
        model=piece.model,
        gpus=piece.shape.gpus,
        strategy=strategy,
        layers=piece.config["num_hidden_layers"],
        notes=notes,
        file=sweep.as_posix(),
    )
    body = yaml.safe_dump(_study(piece, strategy, out_dir), sort_keys=False, width=100)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(piece.config, indent=1) + "\n", encoding="utf-8")
        sweep.write_text(head + body, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out_dir}: {error.strerror}") from error
    for note in piece.notes:
        print(f"note: {note}")
    print(f"{config}\n{sweep}")


def _study(piece: Slice, strategy: str, out_dir: Path) -> dict[str, object]:
    """A small study of the rank: its two kernels and its MHA threshold, under the load that one rank gets."""
    name = re.sub(r"[^a-z0-9.]+", "-", f"{piece.model}-{strategy}-slice".lower())
    per_rank = max(1, 32 // piece.shape.dp)
    base = {"kv_cache_dtype": "fp8_e4m3", "prefill_backend": "flashmla_kv", "mha_threshold_tokens": 2048, **piece.knobs}
    point = {"dataset": "random-ids", "max_concurrency": per_rank}
    return {
        "name": name,
        "runtime": {
            "kind": "sglang",
            "model": out_dir.as_posix(),
            "hardware": "h200",
            "launch": {"python": None, "env": {"HF_HUB_OFFLINE": "1"}},
            "env": {"SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"},
            "base": base,
        },
        "workloads": [
            {"name": "prefill", **point, "input_len": 4096, "output_len": 4, "num_prompts": 8 * per_rank, "seed": 1},
            {"name": "decode", **point, "input_len": 1024, "output_len": 128, "num_prompts": 4 * per_rank, "seed": 2},
        ],
        "sweeps": [
            {
                "axes": {
                    "prefill_backend": ["flashmla_kv", "flashmla_sparse"],
                    "mha_threshold_tokens": [2048, 8192],
                }
            }
        ],
        "objective": {"metric": "total_throughput_tok_s", "direction": "maximize"},
        "budget": {"max_trials": 8, "confirm_boots": 2},
    }

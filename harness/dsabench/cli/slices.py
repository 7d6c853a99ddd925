"""`dsabench slice --model M --gpus N --strategy S OUT_DIR`: what one GPU of a deployment computes, as a study."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsabench.errors import InputError

if TYPE_CHECKING:
    from dsabench.sglang.slice import Slice

_HEAD = """# One GPU of {model} on {gpus} GPUs ({strategy}), {layers} layers, random weights: every number is labelled so.
{notes}
#
# To see what would run: `dsabench sweep {file} --dry-run`. Name the interpreter that has sglang in runtime.launch.
"""


def slice_model(
    out_dir: Annotated[Path, typer.Argument(help="Folder for config.json and slice.yaml; made if it is missing.")],
    model: Annotated[str, typer.Option(help="v3.2 or glm-5.")] = "v3.2",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the deployment.")] = 8,
    strategy: Annotated[str, typer.Option(help="tpN, dpN, epN, mtp, by commas; tp is the attention's.")] = "dp8,ep8",
    layers: Annotated[int | None, typer.Option(min=2, help="Layers to keep.", show_default="all")] = None,
    chunked_prefill_size: Annotated[int, typer.Option(min=1, help="Of the whole deployment.")] = 8192,
    max_running_requests: Annotated[int, typer.Option(min=1, help="Of the whole deployment.")] = 256,
    accept_length: Annotated[float | None, typer.Option(min=1, help="What MTP is pinned to.")] = None,
) -> None:
    """Cut out what one GPU of a deployment computes, to be tuned on one GPU with random weights.

    Writes the model's config.json and slice.yaml, a config for `dsabench sweep` with the settings of one rank.
    """
    from dsabench.sglang.models import WIDTHS
    from dsabench.sglang.slice import Limits, cut, parse_strategy

    limits = Limits(chunked_prefill_size, max_running_requests, accept_length)
    depth = layers or (WIDTHS[model].layers if model in WIDTHS else 2)
    piece = cut(model, parse_strategy(strategy, gpus), depth, limits)
    _write(piece, strategy, out_dir)


def _write(piece: Slice, strategy: str, out_dir: Path) -> None:
    """Write both files and say so.

    Raises:
        InputError: the folder cannot be written.

    """
    import yaml

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

"""Which flags of `dsabench bench` do not go together, and which files cannot be written."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dsabench.errors import InputError
from dsabench.model.dataset import DATASETS


def check_combinations(args: argparse.Namespace) -> None:
    """Refuse combinations that mean nothing; each as bench_serving does, or where it would mislead.

    Raises:
        InputError: one line.

    """
    dataset = DATASETS[args.dataset_name]
    if args.tokenize_prompt and args.backend != "sglang":
        raise InputError("--tokenize-prompt: only with --backend sglang")
    if args.tokenize_prompt and args.dataset_name in ("sharegpt", "custom"):
        raise InputError(f"--tokenize-prompt: dataset {args.dataset_name} is text")
    if (args.gsp_num_turns > 1 or dataset.only_chat) and not args.backend.endswith("-chat"):
        flag = f"--dataset-name {args.dataset_name}" if dataset.only_chat else "--gsp-num-turns"
        raise InputError(f"{flag}: chats go to a chat backend, e.g. --backend sglang-oai-chat")
    if (args.gsp_group_distribution == "zipf") != (args.gsp_zipf_alpha is not None):
        raise InputError("--gsp-zipf-alpha goes with --gsp-group-distribution zipf, and zipf needs it")
    if dataset.is_trace and args.backend != "sglang":
        raise InputError(f"--dataset-name {args.dataset_name}: only with --backend sglang")
    if args.dataset_name == "burstgpt" and (args.draw == "exact" or args.mooncake_num_rounds > 1):
        raise InputError("--dataset-name burstgpt: has one round, and bench_serving has no draw of it")
    if args.draw == "own" and not (args.dataset_name == "random-ids" and args.tokenize_prompt):
        raise InputError("--draw own: only for --dataset-name random-ids with --tokenize-prompt")
    if args.arrivals == "constant" and args.burstiness != 1.0:
        raise InputError("--burstiness: not with --arrivals constant")


def check_output(args: argparse.Namespace) -> None:
    """Refuse files that could not be written, before the load, which nobody wants to repeat.

    Raises:
        InputError: one line.

    """
    if args.plot and Path(args.plot).suffix not in ("", ".svg"):
        raise InputError(f"--plot: {args.plot}: pictures are written as .svg")
    if args.samples and Path(args.samples).suffix != ".parquet":
        raise InputError(f"--samples: {args.samples}: samples are written as .parquet")
    for flag, name in (("--output-file", args.output_file), ("--samples", args.samples), ("--plot", args.plot)):
        if name and (reason := why_unwritable(Path(name))):
            raise InputError(f"{flag}: {name}: {reason}")


def why_unwritable(path: Path) -> str | None:
    """Why a file could not be written there."""
    if path.is_dir():
        return "is a directory"
    if path.exists():
        return None if os.access(path, os.W_OK) else "cannot be written"
    if not path.parent.is_dir():
        return f"no such directory: {path.parent}"
    return None if os.access(path.parent, os.W_OK) else f"{path.parent} cannot be written"

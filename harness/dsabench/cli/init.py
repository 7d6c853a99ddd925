"""`dsabench init`: write a first config for a model, a machine and a goal."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import typer

from dsabench.cli.format import parse_latency_ms
from dsabench.cli.options import StartOptions, flags_of
from dsabench.errors import InputError, StoreError


@dataclass(frozen=True)
class InitOptions(StartOptions):
    """The options of `init`."""

    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write.", show_default="configs/NAME.yaml")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print file, config and command as one JSON object.")] = False


def init(options: InitOptions) -> int:
    """Write a config for a model, GPUs and a goal, and print the command that runs it.

    On a terminal it asks for what is not given. The search space, the load and the default setting come from the configs
    that dsabench ships; edit them in the file.
    """
    from dsabench.config.load import load_study_text
    from dsabench.study.starter import config_text, first_config

    asked = options if options.model is not None else _ask(options)
    wanted = asked.first_study()
    file = asked.out or Path("configs") / f"{wanted.name}.yaml"
    command = shlex.join(["dsabench", "init", *flags_of(asked, [field.name for field in fields(StartOptions)])])
    text = config_text(wanted, command)
    load_study_text(text, file)
    if file.exists() and not asked.force:
        raise InputError(f"{file}: exists already; name another file with --out, or replace it with --force")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the config was not written") from error
    sweep = shlex.join(["dsabench", "sweep", str(file)])
    if asked.json:
        print(json.dumps({"file": str(file), "config": first_config(wanted), "command": sweep}))
        return 0
    print(
        f"{text}\n{file} is written. See what it would run, and how long that takes:\n  {sweep} --dry-run\nRun it:\n  {sweep}"
    )
    return 0


def _ask(options: InitOptions) -> InitOptions:
    """Ask for model, GPUs, goal and a limit."""
    from dsabench.machine.environment import collect_hardware
    from dsabench.signals import run_loop
    from dsabench.study.starter import hardware_here

    if not sys.stdin.isatty():
        raise InputError(
            "name a model: --model deepseek-ai/DeepSeek-V3.2, or --model small to try dsabench on this CPU"
        )
    hardware, gpus = hardware_here(run_loop(collect_hardware()))
    default = "small" if hardware is None else "deepseek-ai/DeepSeek-V3.2"
    asked = replace(options, model=typer.prompt("Model (hub path, v3.2, glm-5, a folder; small needs no GPU)", default))
    if asked.model not in ("tiny", "small", "medium"):
        asked = replace(
            asked,
            hardware=options.hardware or typer.prompt("GPU (h200, b200, mi300x, …)", hardware or "h200"),
            gpus=options.gpus or typer.prompt("Number of GPUs", gpus or 8, type=int),
        )
    asked = replace(asked, goal=typer.prompt("Goal (throughput, latency)", options.goal))
    if asked.goal == "throughput" and asked.ttft_p90 is None and asked.tpot_p90 is None:
        limit = typer.prompt("Limit of the time to first token, p90 (3s; empty: none)", "", show_default=False)
        asked = replace(asked, ttft_p90=parse_latency_ms(limit) if limit else None)
    return asked

"""`dsabench recipe`: hardware, model and strategy → the command, as the cookbook's generator writes it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dsabench.cli.options import LaunchArgs, flags_of
from dsabench.errors import InputError, StoreError


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """The options of `recipe`. On a terminal it asks for those of the choice that are left out."""

    hardware: Annotated[str | None, typer.Option(help="h200, b200, mi300x or mi355x.", show_default=False)] = None
    model: Annotated[
        str | None, typer.Option(help="v3.2, v3.2-exp, v3.2-nvfp4, glm-5, …, or its path.", show_default=False)
    ] = None
    strategy: Annotated[
        str | None, typer.Option(help="tp, and with it dp, ep, mtp, behind commas.", show_default="tp")
    ] = None
    reasoning_parser: Annotated[
        bool | None, typer.Option("--reasoning-parser/--no-reasoning-parser", help="Separate the thinking.")
    ] = None
    tool_call_parser: Annotated[
        bool | None, typer.Option("--tool-call-parser/--no-tool-call-parser", help="Parse tool calls.")
    ] = None
    runtime_version: Annotated[
        str | None, typer.Option(help="Write the command for this sglang instead of the newest known one.")
    ] = None
    launch_arg: LaunchArgs = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write a recipe that `dsabench launch` runs.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="A JSON list of {role, node_rank, argv, env}.")] = False


def recipe(options: RecipeOptions) -> int:
    """Write the launch command of a model on a machine, as the command generator of SGLang's cookbook does.

    On a terminal it asks for what is not given. What that version of sglang refuses, drops or overwrites is named on stderr.
    """
    from dsabench.cli.run_launch import LaunchOptions, launch
    from dsabench.config.knob_types import nested
    from dsabench.config.launch_args import named_args
    from dsabench.runtimes.command import Launch
    from dsabench.runtimes.kinds import runtime_of
    from dsabench.sglang.generator import Wish, generate

    asked = _asked(options)
    assert asked.hardware is not None
    assert asked.model is not None
    strategies = tuple((asked.strategy or "tp").split(","))
    wish = Wish(asked.hardware, asked.model, strategies, bool(asked.reasoning_parser), bool(asked.tool_call_parser))
    made = generate(wish)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    knobs = {**made.spec.knobs, **named_args(tuple(asked.launch_arg or ()))}
    spec = made.spec.model_copy(update={"knobs": knobs})
    printed = LaunchOptions(asked.runtime_version, dry_run=True, as_json=asked.json)
    code = launch(printed, runtime_of("sglang", Launch(entry="serve")), spec)
    if code == 0 and asked.out is not None:
        _write(asked, asked.out, {"model": spec.model, "hardware": spec.hardware, "base": nested(knobs)})
    return code


def _write(options: RecipeOptions, file: Path, runtime: dict[str, Any]) -> None:
    import yaml

    names = [field.name for field in fields(options) if field.name not in {"out", "json", "runtime_version"}]
    said = replace(
        options,
        reasoning_parser=options.reasoning_parser or None,
        tool_call_parser=options.tool_call_parser or None,
    )
    words = shlex.join(["dsabench", "recipe", *flags_of(said, names)])
    version = {} if options.runtime_version is None else {"version": options.runtime_version}
    content = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("._-") or "recipe",
        "runtime": {"kind": "sglang", **version, **runtime, "launch": {"entry": "serve"}},
    }
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(f"# Written by `{words}`.\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}")
    except FileExistsError:
        raise InputError(f"{file}: exists already; name another file with --out") from None
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the recipe was not written") from error
    print(f"{file} is written. Run it:\n  {shlex.join(['dsabench', 'launch', str(file)])}", file=sys.stderr)


def _asked(options: RecipeOptions) -> RecipeOptions:
    """With the answers to what was left out.

    Raises:
        InputError: hardware or model is missing, and nobody can be asked.

    """
    if options.hardware is not None and options.model is not None:
        return options
    if not sys.stdin.isatty():
        missing = "--hardware" if options.hardware is None else "--model"
        raise InputError(f"{missing} is missing: name hardware and model, such as --hardware h200 --model v3.2")
    from dsabench.model.hardware import accelerator
    from dsabench.sglang.generator import OFFERED, STRATEGIES
    from dsabench.sglang.models import MODELS, computes, model_named

    hardware = options.hardware or _choose("Hardware", list(OFFERED), OFFERED[0])
    device = accelerator(hardware)
    fitting = [name for name, model in MODELS.items() if computes(device, model.weights)]
    found = replace(options, hardware=hardware, model=options.model or _choose("Model", fitting, "v3.2"))
    model = model_named(found.model or "")
    if model.needs:
        return found  # the generator has one command for it
    if found.strategy is None:
        listed = ", ".join(STRATEGIES)
        found = replace(found, strategy=_prompt(f"Strategies behind commas ({listed})", "tp"))
    if found.reasoning_parser is None:
        found = replace(found, reasoning_parser=typer.confirm("Separate the thinking?", default=False, err=True))
    if found.tool_call_parser is None and model.tool_call_parser is not None:
        found = replace(found, tool_call_parser=typer.confirm("Parse tool calls?", default=False, err=True))
    return found


def _choose(what: str, allowed: list[str], default: str) -> str:
    def known(text: str) -> str:
        if text not in allowed:
            raise typer.BadParameter(f"one of {', '.join(allowed)}")
        return text

    return _prompt(f"{what} ({', '.join(allowed)})", default, known)


def _prompt(text: str, default: str, check: Callable[[str], str] | None = None) -> str:
    """On stderr: stdout is the command's alone."""
    return str(typer.prompt(text, default, err=True, value_proc=check))

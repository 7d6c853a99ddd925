"""Launch commands and configs with tuned settings: `best.sh` and `best.yaml`, one pair per workload of a study."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from dsabench.cli.about_best import about_best
from dsabench.cli.run_launch import Order as LaunchOrder
from dsabench.cli.run_launch import launch_config
from dsabench.config.load import load_launch, load_study
from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.emit.best_setting import best_settings, study_of
from dsabench.emit.fit import require_emittable
from dsabench.emit.flags import knobs_of
from dsabench.emit.tables import read_tables
from dsabench.errors import InputError, StoreError
from dsabench.model.tuned_table import TunedTable
from dsabench.model.value import KnobValue
from dsabench.results.journal import FILE_NAME, read_journal
from dsabench.runtimes.sglang.hardware import HARDWARE
from dsabench.tuners.target import target_of, target_of_runtime


@dataclass(frozen=True, slots=True)
class FlagsOrder:
    """What to write and where."""

    given: tuple[str, ...]
    config: str | None
    out: Path
    runtime_version: str | None
    allow_simulated: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Tuned:
    """One pair of files. `why` are lines of comment."""

    name: str
    knobs: Mapping[str, KnobValue]
    why: tuple[str, ...]


def write_flags(order: FlagsOrder) -> int:
    """Write the files and name them; returns the exit code."""
    if order.config is None:
        raise InputError("--as flags needs --config: whose runtime, model and other settings the command keeps")
    runtime = load_launch(order.config)
    study = Path(order.given[0])
    if (study / FILE_NAME).is_file() or study.name == FILE_NAME:
        if len(order.given) > 1:
            raise InputError("a study goes alone: its best settings stand in one journal")
        tuned = _of_study(
            study if study.is_dir() else study.parent, order.config, allow_simulated=order.allow_simulated
        )
    else:
        tuned = [_of_tables(order, runtime)]
    written: list[Path] = []
    for one in tuned:
        files = _files(runtime, one, order)
        if files is None:  # the reason was said
            return 2
        written += _write(order.out if len(tuned) == 1 else order.out / one.name, files)
    if order.as_json:
        print(json.dumps([str(path) for path in written], indent=1))
    else:
        for line in dict.fromkeys(line for one in tuned for line in one.why):
            print(line, file=sys.stderr)
        for path in written:
            print(path)
    return 0


def _of_tables(order: FlagsOrder, runtime: RuntimeConfig) -> Tuned:
    knobs: dict[str, KnobValue] = {}
    why: list[str] = []
    kind: Literal["reference", "sglang"] = "reference" if runtime.kind == "reference" else "sglang"
    for file in read_tables(order.given):
        table = file.table
        require_emittable(table, kind, allow_simulated=order.allow_simulated)
        for name, wanted, here in _key(table, runtime):
            if wanted != here:
                raise InputError(f"{file.path}: is for {name} {wanted}, the config has {here}")
        knobs |= knobs_of(table)
        why.append(f"from {table.file_name} ({table.evidence.label})")
    return Tuned("best", knobs, tuple(why))


def _key(table: TunedTable, runtime: RuntimeConfig) -> Iterator[tuple[str, object, object]]:
    """What the table is for, beside what the config says of it, as far as it does."""
    yield "kv_cache_dtype", table.kv_cache_dtype, runtime.base.get("kv_cache_dtype", table.kv_cache_dtype)
    if (hardware := HARDWARE.get(runtime.hardware or "")) is not None:
        yield "the GPU", table.device, hardware.device_name.replace(" ", "_")
    with suppress(InputError):  # a model whose widths are not known here
        target = target_of_runtime(runtime)
        yield "heads per rank", table.heads_per_rank, target.heads_per_rank
        yield "index_topk", table.index_topk, target.index_topk


def _of_study(folder: Path, config_name: str, *, allow_simulated: bool) -> list[Tuned]:
    config = load_study(config_name)
    records = read_journal(folder / FILE_NAME).records
    study = study_of(config, folder, records, _index_topk(config), allow_simulated=allow_simulated)
    return [Tuned(best.workload, best.chosen.spec.knobs, about_best(config, best)) for best in best_settings(study)]


def _index_topk(config: StudyConfig) -> int | None:
    try:
        return target_of(config).index_topk
    except InputError:  # a model whose widths are not known here
        return None


def _files(runtime: RuntimeConfig, tuned: Tuned, order: FlagsOrder) -> dict[str, str] | None:
    """Name → text; None where a rule of the runtime forbids the settings."""
    best = runtime.model_copy(update={"base": {**runtime.base, **tuned.knobs}})
    said = io.StringIO()
    launch = LaunchOrder(None, order.runtime_version, dry_run=True, as_json=False)
    with redirect_stdout(said):
        code = launch_config(launch, best)
    if code:
        return None
    comment = "".join(f"# {line}\n" for line in tuned.why)
    # Where the runtime lies, and tokens, are this machine's: they stay in the config.
    kept = best.model_dump(mode="json", exclude_defaults=True, exclude={"launch", "ready_timeout_s"})
    document = {"name": tuned.name, "runtime": {**kept, "base": dict(best.base)}}
    return {
        "best.sh": f"#!/bin/sh\n{comment}{said.getvalue().strip()}\n",
        "best.yaml": comment + yaml.safe_dump(document, sort_keys=False, allow_unicode=True),
    }


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "best.sh").chmod(0o755)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}: the commands were not written") from error
    return [folder / name for name in files]

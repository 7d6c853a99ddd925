"""What tuned settings turn into: launch commands, and files of the schedulers that run deployments."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

import yaml

from dsabench.cli.run_launch import LaunchOptions, checked_setting
from dsabench.config.load import load_launch, load_study
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.emit.best_setting import Best, best_settings, study_of
from dsabench.emit.deployment import Form, Wanted, as_comment, deployment_of, without_places
from dsabench.emit.fit import require_emittable
from dsabench.emit.flags import knobs_of
from dsabench.emit.schedulers import FILES, write_files
from dsabench.emit.shell_scripts import command_script
from dsabench.emit.tables import read_tables
from dsabench.errors import InputError
from dsabench.model.hardware import accelerator
from dsabench.model.numerics import changed_numerics
from dsabench.model.runtime import labels_of
from dsabench.model.tuned_table import LaunchRule, StepsRule, TunedTable
from dsabench.model.value import KnobValue
from dsabench.model.verdict import Verdict
from dsabench.reporting.numbers import show_figure, show_percent
from dsabench.results.journal import FILE_NAME, read_journal
from dsabench.runtimes.kinds import make_runtime
from dsabench.tuners.target import attention_groups, target_of, target_of_runtime

ADAPTIVE_FILE = "speculative-adaptive.json"


@dataclass(frozen=True, slots=True)
class EmitLaunchOptions:
    """What to write and where."""

    given: tuple[str, ...]
    form: Literal["command"] | Form
    config: str | None
    out: Path
    runtime_version: str | None
    image: str | None
    allow_simulated: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """One setting. `why` are lines of comment."""

    name: str
    """Of its folder: the workload under which it is the best."""
    knobs: Mapping[str, KnobValue]
    why: tuple[str, ...]
    files: Mapping[str, str]
    """Files that its settings name, beside the command."""
    deployment: str
    """What its deployment is called."""
    version: str | None = None
    """Of the runtime that was measured; None for tables."""


def write_launch(options: EmitLaunchOptions) -> int:
    """Write the files and name them; returns the exit code."""
    if options.config is None:
        raise InputError(
            f"--as {options.form} needs --config: whose runtime, model and other settings the command keeps"
        )
    runtime = load_launch(options.config)
    study = Path(options.given[0])
    if (study / FILE_NAME).is_file() or study.name == FILE_NAME:
        if len(options.given) > 1:
            raise InputError("a study goes alone: its best settings stand in one journal")
        tuned = _of_study(
            study if study.is_dir() else study.parent, options.config, allow_simulated=options.allow_simulated
        )
    else:
        tuned = [_of_tables(options, runtime)]
    written: list[Path] = []
    for one in tuned:
        files = _files(runtime, one, options)
        if files is None:  # the reason was said
            return 2
        written += write_files(options.out if len(tuned) == 1 else options.out / one.name, files)
    if options.as_json:
        print(json.dumps([str(path) for path in written], indent=1))
    else:
        for line in dict.fromkeys(line for one in tuned for line in one.why):
            print(line, file=sys.stderr)
        for path in written:
            print(path)
    return 0


def _of_tables(options: EmitLaunchOptions, runtime: RuntimeConfig) -> TunedLaunch:
    knobs: dict[str, KnobValue] = {}
    why: list[str] = []
    files: dict[str, str] = {}
    kind = runtime_kinds()[runtime.kind].tables
    for file in read_tables(options.given):
        table = file.table
        require_emittable(table, kind, allow_simulated=options.allow_simulated)
        for name, wanted, here in _key(table, runtime):
            if wanted != here:
                raise InputError(f"{file.path}: is for {name} {wanted}, the config has {here}")
        knobs |= knobs_of(table, attention_groups(runtime.base))
        why.append(f"from {table.file_name} ({table.evidence.label})")
        if isinstance(table.rule, StepsRule):
            if options.form != "command":
                raise InputError(f"{file.path}: steps by batch size are a file beside the command: --as command")
            files[ADAPTIVE_FILE] = json.dumps(table.rule.adaptive_config(), indent=1) + "\n"
            knobs["speculative_adaptive_config"] = str((options.out / ADAPTIVE_FILE).absolute())
    return TunedLaunch("best", knobs, tuple(why), files, PurePath(runtime.model).name)


def _key(table: TunedTable, runtime: RuntimeConfig) -> Iterator[tuple[str, object, object]]:
    """What the table is for, beside what the config says of it, as far as it does."""
    yield "kv_cache_dtype", table.kv_cache_dtype, runtime.base.get("kv_cache_dtype", table.kv_cache_dtype)
    device = None if runtime.hardware is None else accelerator(runtime.hardware).device_name
    if device is not None:
        yield "the GPU", table.device, device.replace(" ", "_")
    with suppress(InputError):  # a model whose widths are not known here
        target = target_of_runtime(runtime)
        yield "heads per rank", table.heads_per_rank, target.heads_per_rank
        yield "index_topk", table.index_topk, target.index_topk
        if isinstance(table.rule, LaunchRule):
            yield "the strategy", table.rule.strategy, target.strategy


def _of_study(folder: Path, config_name: str, *, allow_simulated: bool) -> list[TunedLaunch]:
    config = load_study(config_name)
    records = read_journal(folder / FILE_NAME).records
    study = study_of(config, folder, records, _index_topk(config), allow_simulated=allow_simulated)
    measured = study.served[-1].environment.runtime.version
    version = measured if measured in make_runtime(config.runtime).releases else None
    found = best_settings(study)
    return [
        TunedLaunch(
            best.workload,
            best.chosen.spec.knobs,
            about_best(config, best),
            {},
            config.name if len(found) == 1 else f"{config.name}-{best.workload}",
            version,
        )
        for best in found
    ]


def _index_topk(config: StudyConfig) -> int | None:
    try:
        return target_of(config).index_topk
    except InputError:  # a model whose widths are not known here
        return None


def _files(runtime: RuntimeConfig, tuned: TunedLaunch, options: EmitLaunchOptions) -> dict[str, str] | None:
    """Name → text; None where a rule of the runtime forbids the settings."""
    best = runtime.model_copy(update={"base": {**runtime.base, **tuned.knobs}})
    version = options.runtime_version or best.version or tuned.version
    launch = LaunchOptions(version, dry_run=True, as_json=False)
    setting = checked_setting(launch, make_runtime(best), best.spec({}))
    if setting is None:
        return None
    if options.form == "command":
        comment = as_comment(tuned.why)
        document = {"name": tuned.name, "runtime": without_places(best)}
        return {
            "best.sh": command_script(setting.processes, comment),
            **tuned.files,
            "best.yaml": comment + yaml.safe_dump(document, sort_keys=False, allow_unicode=True),
        }
    wanted = Wanted(best, setting.spec, setting.version, tuned.deployment, tuned.why, options.image)
    return FILES[options.form](deployment_of(wanted, options.form))


def about_best(config: StudyConfig, best: Best) -> tuple[str, ...]:
    """What is to be known of the best setting, a line each."""
    return tuple(_lines_about(config, best))


def _lines_about(config: StudyConfig, best: Best) -> Iterator[str]:
    chosen, metric = best.chosen, config.objective.metric
    boots = f"median of {chosen.boots} boots" if chosen.boots > 1 else "one boot"
    yield f"best of {config.name} under {best.workload}: {metric} {show_figure(chosen.value)}, {boots}"
    if chosen.spec == best.default:
        yield "this is the default itself: nothing else that was measured and may be a default is better"
    elif not chosen.is_confirmed:
        yield "not confirmed: picked by looking at the search, never held against the default in turns"
    elif not best.verdicts:
        yield "not held against the default: no boots of both took turns"
    yield from (f"against the default, {_said(verdict)}" for verdict in best.verdicts)
    if labels := labels_of(chosen.spec):
        yield f"measured with {', '.join(labels)}: speeds are valid for these shapes, outputs mean nothing"
    yield from _accuracy(best)
    for one in best.left_out:
        label = one.spec.changes(best.default)
        yield f"left out although {metric} is {show_figure(one.value)}: {label}: {one.why_not}"


def _said(verdict: Verdict) -> str:
    """`answer: inconclusive, +27.1 % (-16.3 % to +92.9 %), 2 and 2 boots`, and what that means."""
    interval = "" if verdict.ci_low is None else f" ({show_percent(verdict.ci_low)} to {show_percent(verdict.ci_high)})"
    boots = f"{verdict.n_base} and {verdict.n_candidate} boots"
    line = f"{verdict.workload}: {verdict.verdict}, {show_percent(verdict.effect)}{interval}, {boots}"
    if verdict.verdict == "inconclusive":
        return f"{line}: whether it is better is not shown; {verdict.reason}"
    return line


def _accuracy(best: Best) -> Iterator[str]:
    numeric = changed_numerics(best.default, best.chosen.spec)
    if not numeric:
        return
    line = f"may change answers ({', '.join(numeric)})"
    if not best.gates:
        yield f"{line}: accuracy unproven, for there is no gate in the config, or random weights that it means nothing for"
    for gate in best.gates:
        yield f"{line}: passed the gate {gate.eval} ({gate.verdict}, margin {gate.margin:g}, {gate.n} questions)"

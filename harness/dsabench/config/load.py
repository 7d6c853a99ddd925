"""Load a config, an eval or a published run by name, or report its mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsabench import rooms
from dsabench.config.files import AcceptServerFile, AutotuneFile, FirstFile, LaunchFile, SweepFile, TuneFile, gates_of
from dsabench.config.goals import Goal
from dsabench.config.mistakes import parse_sections
from dsabench.config.runtime_rules import foreign_axes, launch_mistakes, runtime_mistakes
from dsabench.config.search_space import SweepPart, join
from dsabench.config.specs import (
    AcceptEval,
    AcceptServer,
    Autotune,
    HisparseTune,
    KernelTune,
    MemorySpec,
    MtpTune,
    RuntimeConfig,
    StudyConfig,
    Tune,
)
from dsabench.config.study_rules import (
    accept_mistakes,
    budget_mistakes,
    confirm_mistakes,
    first_mistakes,
    gate_mistakes,
    gpu_mistakes,
    numerics_mistakes,
    objective_mistakes,
    tokenizer_mistakes,
    workload_mistakes,
)
from dsabench.config.yaml_file import KeyPath, YamlFile, parse_yaml, read_yaml
from dsabench.errors import ConfigError, InputError, printable
from dsabench.model.evals import GENERATED, EvalSpec
from dsabench.model.published import PublishedRun
from dsabench.model.study import SearchSpace

_RULES: dict[str, Callable[[YamlFile, Any], Iterator[ConfigError]]] = {
    "runtime": runtime_mistakes,
    "workloads": workload_mistakes,
    "objective": objective_mistakes,
    "budget": budget_mistakes,
    "gate": gate_mistakes,
}


def load_study(name: str | Path) -> StudyConfig:
    """Load a config: a path, `configs/NAME.yaml`, or NAME.

    Raises:
        InputError: there is no such file.
        ConfigError: the first mistake in the file, with the number of the others.

    """
    path = rooms.find("configs", str(name))
    config, found = _read_config(path)
    if config is None:
        raise _first_of(found, name)
    return config


def load_launch(name: str | Path) -> RuntimeConfig:
    """Load the runtime of a config or recipe. Workloads and the rest may be missing or wrong.

    Raises:
        InputError: there is no such file.
        ConfigError: the first mistake in its runtime, with the number of the others.

    """
    runtime, found = _read_launch(read_yaml(rooms.find("configs", str(name))))
    if runtime is None:
        raise _first_of(found, name)
    return runtime


def load_expanded(name: str | Path) -> StudyConfig | RuntimeConfig:
    """Load a config, or the runtime of a recipe: everything that its file leaves to defaults is filled in.

    Raises:
        InputError: there is no such file, or it is of another kind.
        ConfigError: the first mistake in the file.

    """
    path = rooms.find("configs", str(name))
    if path.parent.name in ("published", "evals", "sweeps"):
        raise InputError(f"{name}: only configs and recipes can be shown expanded")
    return load_launch(path) if _is_launch(read_yaml(path)) else load_study(path)


def load_study_text(text: str, file: Path) -> StudyConfig:
    """Load the text of a config that is not a file yet; `file` names it in errors.

    Raises:
        ConfigError: the first mistake in the text.

    """
    config, found = _config_of(parse_yaml(text.encode(), str(file)), file)
    if config is None:
        raise _first_of(found, str(file))
    return config


def _first_of(found: tuple[ConfigError, ...], name: str | Path) -> ConfigError:
    first, more = found[0], len(found) - 1
    rest = f" (and {more} more: dsabench config check {printable(str(name))})" if more else ""
    return ConfigError(first.message + rest, file=first.file, line=first.line, key=first.key)


def find_mistakes(name: str | Path) -> tuple[ConfigError, ...]:
    """Every mistake in a config or a single sweep file; empty if it is correct."""
    try:
        path = rooms.find("configs", str(name))
        source = read_yaml(path)
    except ConfigError as error:
        return (error,)
    except InputError as error:
        return (ConfigError(printable(str(error)).removeprefix(f"{name}: "), file=printable(str(name))),)
    if path.parent.name == "published":
        return tuple(parse_sections(source, "published")[1])
    if path.parent.name == "evals":
        return eval_mistakes(source)
    if path.parent.name == "sweeps" or (source.data and source.data.keys() <= SweepFile.model_fields.keys()):
        return tuple(_sweep_mistakes(source))
    return _read_launch(source)[1] if _is_launch(source) else _read_config(path)[1]


def _is_launch(source: YamlFile) -> bool:
    """Whether the file describes a server without a study."""
    return "runtime" in source.data and source.data.keys() <= LaunchFile.model_fields.keys()


def _read_launch(source: YamlFile) -> tuple[RuntimeConfig | None, tuple[ConfigError, ...]]:
    sections, found = parse_sections(source, "launch" if _is_launch(source) else "config")
    runtime: RuntimeConfig | None = sections.get("runtime")
    if not _is_launch(source):
        found = [error for error in found if (error.key or "").partition(".")[0] == "runtime"]
    if runtime is not None:
        found += launch_mistakes(source, runtime)
    if found or runtime is None:
        return None, tuple(_in_order(found or [source.error("missing key 'runtime'")], source.file))
    return runtime.settled(), ()


def _read_config(path: Path) -> tuple[StudyConfig | None, tuple[ConfigError, ...]]:
    try:
        source = read_yaml(path)
    except ConfigError as error:
        return None, (error,)
    return _config_of(source, path)


def _config_of(source: YamlFile, path: Path) -> tuple[StudyConfig | None, tuple[ConfigError, ...]]:
    """The config, or None and its mistakes in the order of files and lines."""
    sections, found = parse_sections(source, "config")
    if isinstance(goal := sections.get("objective"), Goal):
        sections["objective"] = goal.expanded()
    for key, rule in _RULES.items():
        if sections.get(key) is not None:
            found += rule(source, sections[key])
    if sections.get("workloads") is not None and sections.get("runtime") is not None:
        found += tokenizer_mistakes(source, sections["workloads"], sections["runtime"])
    if sections.get("runtime") is not None:
        found += gpu_mistakes(source, sections)
    space, wrong = _joint_space(source, path, sections)
    found += wrong
    if space is not None and sections.get("objective") is not None:
        found += numerics_mistakes(source, sections["objective"], space, sections["runtime"].base)
    found += _first(source, path, sections, space)
    if sections.get("budget") is not None:
        found += confirm_mistakes(source, sections["budget"], sections.get("first") or ())
    if found or space is None:
        return None, tuple(_in_order(found, source.file))
    tunes: AutotuneFile = sections.pop("autotune")
    servers: tuple[AcceptServerFile, ...] = sections.pop("accept")
    del sections["sweeps"]
    sections["runtime"], sections["gate"] = sections["runtime"].settled(), gates_of(sections["gate"])
    autotune, found = _autotune(source, path, sections["name"], tunes)
    accept, wrong = _accept(source, path, sections["name"], servers)
    if found or wrong:
        return None, (*found, *wrong)
    return StudyConfig(**sections, space=space, autotune=autotune, accept=accept), ()


def _first(source: YamlFile, path: Path, sections: dict[str, Any], space: SearchSpace | None) -> Iterator[ConfigError]:
    """Take the settings and the journals of `first` apart, and find their mistakes."""
    at: KeyPath = ("first",)
    if isinstance(first := sections.get("first"), FirstFile):
        names = (first.journals,) if isinstance(first.journals, str) else first.journals
        journals, wrong = _folders(source, names, path, "from")
        kernels, lost = _folders(source, () if first.kernels is None else (first.kernels,), path, "kernels")
        yield from (*wrong, *lost)
        at, sections["first"] = ("first", "settings"), first.settings
        sections["memory"] = MemorySpec(
            journals=journals, winners=first.winners, kernels=kernels[0] if kernels else None
        )
    if space is not None and sections.get("first"):
        yield from first_mistakes(source, at, sections["first"], space, sections["runtime"].base)


def _folders(
    source: YamlFile, names: Iterable[str], config: Path, key: str
) -> tuple[tuple[str, ...], list[ConfigError]]:
    """Paths as they are found from here, else from the config's folder; and those that are not found."""
    found = {name: next(filter(Path.exists, (Path(name), config.parent / name)), None) for name in names}
    wrong = [source.error(f"{name}: no such folder", ("first", key)) for name, path in found.items() if path is None]
    return tuple(str(path) for path in found.values() if path is not None), wrong


_INHERITED = ("runtime", "workloads", "proposer", "objective", "budget", "gate", "price_per_gpu_hour")
"""Keys of a config that its tunes take over. Sweeps and first settings are those of the one study."""
_OF_TUNE = {"kernels", "memory", "accept_rate"}
"""Keys of a tune that no study has."""
_TUNES: dict[str, type[Tune]] = {
    "flashmla_auto": KernelTune,
    "mha_threshold": Tune,
    "hisparse": HisparseTune,
    "mtp": MtpTune,
}


def _autotune(source: YamlFile, path: Path, name: str, tunes: AutotuneFile) -> tuple[Autotune, list[ConfigError]]:
    """Each tune as a study of its own: what it leaves out is as in the config."""
    made: dict[str, Tune] = {}
    found: list[ConfigError] = []
    for key, kind in _TUNES.items():
        tune: TuneFile | None = getattr(tunes, key)
        if tune is None:
            continue
        own = f"{name}-{key.replace('_', '-')}"
        study, wrong = _config_of(_section(source, own, ("autotune", key), _OF_TUNE), path)
        found += wrong
        if study is not None:
            more = {name: getattr(tune, name) for name in _OF_TUNE & type(tune).model_fields.keys()}
            made[key] = kind(study=study, fixed=tuple(tune.base), **more)
    return Autotune(**made, proof=tunes.proof), found


def _accept(
    source: YamlFile, path: Path, name: str, servers: Sequence[AcceptServerFile]
) -> tuple[tuple[AcceptServer, ...], list[ConfigError]]:
    """Each server as a study of its own, without sweeps."""
    made: list[AcceptServer] = []
    found: list[ConfigError] = []
    for index, server in enumerate(servers):
        at: KeyPath = ("accept", index)
        study, wrong = _config_of(_section(source, f"{name}-{server.name}", at, _OF_SERVER), path)
        found += wrong
        if study is None:
            continue
        evals = tuple(AcceptEval(eval=one) if isinstance(one, str) else one for one in server.evals)
        if server.name in {one.name for one in made}:
            found.append(source.error(f"{server.name!r} names a server already", (*at, "name")))
        found += accept_mistakes(source, at, server, evals, [load.name for load in study.workloads])
        found += [
            source.error(f"no published run {run!r} (known: {', '.join(published_names())})", (*at, "beside", load))
            for load, run in server.beside.items()
            if published_file(run) is None
        ]
        made.append(AcceptServer(name=server.name, study=study, evals=evals, beside=server.beside))
    return tuple(made), found


_OF_SERVER = {"name", "beside", "evals"}
"""Keys of a server of an acceptance that no study has."""


def _section(source: YamlFile, name: str, at: KeyPath, foreign: set[str]) -> YamlFile:
    """A part of a config as the file of a study. Its `base` goes over that of the runtime."""
    whole: dict[str, Any] = dict(source.data)
    given: Any = whole
    for word in at:
        given = given[word]
    own = {word: value for word, value in given.items() if word not in {"base", *foreign}}
    runtime, base = whole["runtime"], given.get("base", {})
    data = {word: whole[word] for word in _INHERITED if word in whole} | own
    data |= {"name": name, "runtime": {**runtime, "base": {**runtime.get("base", {}), **base}}}
    origins: dict[KeyPath, KeyPath] = {(word,): (*at, word) for word in own}
    origins |= {("runtime", "base", knob): (*at, "base", knob) for knob in base}
    return replace(source, data=data, origins=origins)


def _joint_space(
    source: YamlFile, path: Path, sections: Mapping[str, Any]
) -> tuple[SearchSpace | None, list[ConfigError]]:
    """Read the named sweeps even if other parts are wrong, and join them if all are correct."""
    given = source.data.get("sweeps")
    inline: tuple[str | SweepFile, ...] = sections.get("sweeps", ())
    parts: list[SweepPart] = []
    found: list[ConfigError] = []
    for index, entry in enumerate(given if isinstance(given, list) else []):
        if isinstance(entry, str) and entry:
            part, wrong = _named_part(source, index, entry, path)
            found += wrong
            parts += [part] if part else []
        elif index < len(inline) and isinstance(sweep := inline[index], SweepFile):
            parts.append(SweepPart(source, ("sweeps", index), sweep))
    if found or not {"sweeps", "runtime"} <= sections.keys():
        return None, found
    runtime: RuntimeConfig = sections["runtime"]
    space, found = join(parts, runtime.base)
    return space, [*found, *foreign_axes(parts, runtime)]


def _named_part(source: YamlFile, index: int, name: str, config: Path) -> tuple[SweepPart | None, list[ConfigError]]:
    try:
        file = _find_sweep(name, config)
    except InputError as error:
        return None, [source.error(str(error), ("sweeps", index))]
    except OSError:  # a name that is too long for the file system
        return None, [source.error("no such file", ("sweeps", index))]
    try:
        inner = read_yaml(file)
    except ConfigError as error:
        return None, [error]
    sections, found = parse_sections(inner, "sweep")
    return (None if found else SweepPart(inner, (), SweepFile(**sections))), found


def _find_sweep(name: str, config: Path) -> Path:
    """A path is relative to the config's folder first."""
    beside = config.parent / name
    return beside if name.endswith((".yaml", ".yml")) and beside.is_file() else rooms.find("sweeps", name)


def _sweep_mistakes(source: YamlFile) -> list[ConfigError]:
    sections, found = parse_sections(source, "sweep")
    if not found:
        found = join([SweepPart(source, (), SweepFile(**sections))], None)[1]
    return _in_order(found, source.file)


def _in_order(found: list[ConfigError], first_file: str) -> list[ConfigError]:
    once = {str(error): error for error in found}.values()  # a broken sweep may be named twice
    return sorted(once, key=lambda error: (error.file != first_file, error.file, error.line or 0))


def load_eval(name: str) -> EvalSpec:
    """Load an eval: a path, `evals/NAME.yaml`, or NAME.

    Raises:
        InputError: there is no such file.
        ConfigError: the first mistake in the file.

    """
    source = read_yaml(rooms.find("evals", name))
    sections, found = parse_sections(source, "eval")
    found = sorted(found or list(_mistakes(source, EvalSpec(**sections))), key=lambda error: error.line or 0)
    if found:
        raise found[0]
    return EvalSpec(**sections)


def eval_mistakes(source: YamlFile) -> tuple[ConfigError, ...]:
    """Every mistake in the file of an eval."""
    sections, found = parse_sections(source, "eval")
    return tuple(found or _mistakes(source, EvalSpec(**sections)))


def _mistakes(source: YamlFile, spec: EvalSpec) -> Iterator[ConfigError]:
    if (spec.reader == "needle") != (spec.needle is not None):
        yield source.error("stands exactly where reader is needle", ("needle",))
    if (spec.reader == "tasks") != (spec.tasks is not None):
        yield source.error("stands exactly where reader is tasks", ("tasks",))
    if spec.reader == "tasks" and spec.num_examples is None:
        yield source.error("reader tasks needs it: there is no end of questions", ("num_examples",))
    if spec.reader not in GENERATED and (spec.dataset.url is None or spec.dataset.file is None):
        yield source.error(f"reader {spec.reader} needs url and file", ("dataset",))
    if spec.num_subjects is not None and spec.reader != "mmlu":
        yield source.error("only reader mmlu has subjects", ("num_subjects",))


_FOLDER = "published"


def published_file(name: str) -> Path | None:
    """The YAML file of a path or of a published run's name; None for anything else."""
    given = Path(name)
    if given.suffix in (".yaml", ".yml") and given.is_file():
        return given
    if given.exists() or "#" in name:
        return None
    stem = given.name.removesuffix(".yaml") if given.parent.name in ("", _FOLDER) else ""
    known = published_names()
    return rooms.find("sweeps", f"{_FOLDER}/{stem}") if stem in known else None


def published_names() -> list[str]:
    """Names of all published runs, sorted."""
    found = {file.stem for folder in rooms.folders("sweeps") for file in (folder / _FOLDER).glob("*.yaml")}
    return sorted(found)


def load_published(path: Path) -> PublishedRun:
    """Load one published run.

    Raises:
        ConfigError: the first mistake in the file.

    """
    source = read_yaml(path)
    sections, found = parse_sections(source, "published")
    if found:
        raise min(found, key=lambda error: error.line or 0)
    run = PublishedRun(**sections)
    if run.name != path.stem:
        raise ConfigError(f"the file is {path.stem}.yaml; they must be equal", file=source.file, key="name")
    return run

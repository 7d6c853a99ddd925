"""An eval's name or path → an `EvalSpec`, or the first mistake in its file."""

from __future__ import annotations

from collections.abc import Iterator

from dsabench import rooms
from dsabench.config.mistakes import parse_sections
from dsabench.config.yaml_source import Source, read_yaml
from dsabench.errors import ConfigError
from dsabench.model.evals import EvalSpec


def load_eval(name: str) -> EvalSpec:
    """The eval that `name` means: a path, `evals/NAME.yaml`, or just NAME.

    Raises:
        InputError: no such file.
        ConfigError: the first mistake of the file.

    """
    source = read_yaml(rooms.find("evals", name))
    sections, found = parse_sections(source, "eval")
    found = sorted(found or list(_mistakes(source, EvalSpec(**sections))), key=lambda error: error.line or 0)
    if found:
        raise found[0]
    return EvalSpec(**sections)


def eval_mistakes(source: Source) -> tuple[ConfigError, ...]:
    """Every mistake of an eval's file."""
    sections, found = parse_sections(source, "eval")
    return tuple(found or _mistakes(source, EvalSpec(**sections)))


def _mistakes(source: Source, spec: EvalSpec) -> Iterator[ConfigError]:
    if (spec.reader == "needle") != (spec.needle is not None):
        yield source.error("stands exactly where reader is needle", ("needle",))
    if spec.reader != "needle" and (spec.dataset.url is None or spec.dataset.file is None):
        yield source.error(f"reader {spec.reader} needs url and file", ("dataset",))
    if spec.num_subjects is not None and spec.reader != "mmlu":
        yield source.error("only reader mmlu has subjects", ("num_subjects",))

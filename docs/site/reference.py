"""Reference pages that are made from the program itself, so that they cannot say anything else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from dsabench.cli.app import app
from dsabench.cli.bench_flags import flag_tables, make_parser
from dsabench.config.files import FORMS, json_schema
from dsabench.model.hardware import HARDWARE, Accelerator
from dsabench.model.knobs import KNOBS
from dsabench.model.metrics import METRICS
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.tables import read_table
from dsabench.sglang.rules.table import RULES, check
from dsabench.sglang.versions import READ, Version

_NOTE = "*This page is generated from the program.*\n"


def pages() -> dict[str, str]:
    """Path of a page below docs/ → its Markdown."""
    return {
        "reference/commands.md": _commands(),
        "reference/config.md": _config(),
        "reference/knobs.md": _knobs(),
        "reference/sparse-kernels.md": _sparse_kernels(),
        "reference/metric-names.md": _metrics(),
        "reference/record.md": _record(),
    }


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _table(heads: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]) + "\n"


def _commands() -> str:
    parts = ["# Commands\n", _NOTE]
    for words, command in _walk("dsabench", typer.main.get_command(app)):
        parts.append(f"## `{words}`\n\n{inspect.cleandoc(command.help or '')}\n")
        if words == "dsabench bench":  # argparse reads its flags
            for title, flags in flag_tables(make_parser()).items():
                parts.append(
                    f"### {title}\n\n{_table(('flag', 'meaning'), [(f'`{one}`', text) for one, text in flags])}"
                )
            continue
        rows: list[tuple[object, ...]] = []
        for param in command.params:
            if param.name == "help" or getattr(param, "hidden", False):
                continue
            is_option = param.param_type_name == "option"
            name = " ".join(f"`{one}`" for one in param.opts) if is_option else f"`{(param.name or '').upper()}`"
            shown = getattr(param, "show_default", None)
            default = shown if isinstance(shown, str) else param.default
            default = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
            rows.append((name, default, getattr(param, "help", "") or ""))
        if rows:
            parts.append(_table(("option", "default", "meaning"), rows))
    return "\n".join(parts)


def _walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _walk(f"{words} {name}", inner)
    else:
        yield words, command


def _config() -> str:
    parts = [
        "# Config files\n",
        _NOTE,
        "`dsabench config check FILE` checks a file, `--show` prints it with all defaults.\n",
    ]
    titles = {
        "config": "A study: `configs/NAME.yaml`",
        "sweep": "A search space: `sweeps/NAME.yaml`",
        "launch": "A server: `configs/recipes/NAME.yaml`",
        "eval": "An eval: `evals/NAME.yaml`",
    }
    told: set[str] = set()
    for form in FORMS:
        if form not in titles:
            continue
        schema = json_schema(form)
        parts.append(f"## {titles[form]}\n\n{_properties(schema)}")
        for name, definition in schema.get("$defs", {}).items():
            if name in told or "properties" not in definition or name.startswith("Knob"):
                continue
            told.add(name)
            about = " ".join(definition.get("description", "").split())
            parts.append(f"### {name}\n\n{about}\n\n{_properties(definition)}")
    return "\n".join(parts)


def _properties(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows: list[tuple[object, ...]] = []
    for key, inner in schema.get("properties", {}).items():
        default = "**required**" if key in required else f"`{_default(inner.get('default'))}`"
        rows.append((f"`{key}`", _type(inner), default, inner.get("description", "")))
    return _table(("key", "type", "default", "meaning"), rows)


def _default(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, options)))
    if "enum" in schema or "const" in schema:
        words = schema.get("enum", [schema.get("const")])
        return "one of the metrics" if len(words) > 20 else ", ".join(f"`{word}`" for word in words)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or (schema.get('prefixItems') or [{}])[0])}"
    inner = schema.get("additionalProperties")
    return f"mapping of {_type(inner)}" if isinstance(inner, Mapping) else str(schema.get("type", "any"))


def _named(definition: str) -> str:
    if definition.startswith("Knob"):
        return "[knobs](knobs.md)"
    return "JSON" if definition == "JsonValue" else f"[{definition}](#{definition.lower()})"


def _knobs() -> str:
    parts = ["# Knobs\n", _NOTE, "The names of settings, whatever flags the installed version has.\n"]
    for group, rows in read_table("knobs.yaml", "dsabench.model").items():
        found: list[tuple[object, ...]] = []
        for name, row in rows.items():
            low, high = row.get("min"), row.get("max")
            allowed = ", ".join(f"`{choice}`" for choice in row.get("choices", ()))
            if low is not None or high is not None:
                allowed = f"{'' if low is None else low} to {'' if high is None else high}".strip()
            found.append((f"`{name}`", row["type"], allowed, row["meaning"]))
        parts.append(
            f"## {group.replace('_', ' ').capitalize()}\n\n{_table(('knob', 'type', 'allowed', 'meaning'), found)}"
        )
    return "\n".join(parts)


_DTYPES = ("bfloat16", "fp8_e4m3")
_MACHINES = ("h200", "b200", "mi300x")


def _sparse_kernels() -> str:
    """For each sparse attention kernel, whether the rules of the newest version let it run."""
    version = max(READ)
    about = (
        f"Which sparse attention kernel runs with which KV dtype on which GPU, by [the rules](../sglang-rules.md) for "
        f"SGLang {version}: DeepSeek-V3.2 with TP 8, all other settings at their defaults.\n\n"
        "- *yes*: it runs, with the default kernel in the other phase. *with* names a kernel that the other phase needs.\n"
        "- A rule's id: it is refused with every kernel in the other phase, for that reason.\n"
        "- The table says nothing about speed or about what fits a GPU's memory.\n"
    )
    parts = ["# Kernels, dtypes, GPUs and HiSparse\n", _NOTE, about]
    for phase, other in (("prefill", "decode"), ("decode", "prefill")):
        for hisparse in (False, True):
            title = f"`--dsa-{phase}-backend`{' with HiSparse' * hisparse}"
            parts.append(f"## {title}\n\n{_kernel_table(phase, other, version, hisparse=hisparse)}")
    named = sorted(set(re.findall(r"\b[A-Z]{2}\d\d\b", "\n".join(parts))))
    rows: list[tuple[object, ...]] = [(rule.id, rule.condition, rule.fix) for rule in RULES if rule.id in named]
    parts.append(f"## The rules named here\n\n{_table(('id', 'what is refused', 'nearest legal setting'), rows)}")
    return "\n".join(parts)


def _kernel_table(phase: str, other: str, version: Version, *, hisparse: bool) -> str:
    base: dict[str, Any] = {"tp_size": 8, **({"hisparse": True, "prefix_cache": False} if hisparse else {})}
    columns = [(HARDWARE[name], dtype) for name in _MACHINES for dtype in _DTYPES]
    heads = ("kernel", *(f"{machine.name} {dtype.partition('_')[0]}" for machine, dtype in columns))
    rows: list[tuple[object, ...]] = []
    for kernel in KNOBS[f"{phase}_backend"].choices:
        if kernel == "intel_xpu":  # for none of these GPUs
            continue
        cells = [
            _runs({**base, f"{phase}_backend": kernel, "kv_cache_dtype": dtype}, f"{other}_backend", version, machine)
            for machine, dtype in columns
        ]
        rows.append((f"`{kernel}`", *cells))
    return _table(heads, rows)


def _runs(knobs: Mapping[str, Any], other: str, version: Version, machine: Accelerator) -> str:
    """`yes`, `with KERNEL`, or the rules that refuse the setting whatever the other phase's kernel is."""
    always: set[str] | None = None
    for kernel in (None, *KNOBS[other].choices):
        tried = dict(knobs) if kernel is None else {**knobs, other: kernel}
        spec = RuntimeSpec(kind="sglang", model="deepseek-ai/DeepSeek-V3.2", knobs=tried, hardware=machine.name)
        errors = {found.rule for found in check(spec, version, machine) if found.severity == "error"}
        if not errors:
            return "yes" if kernel is None else f"with `{kernel}`"
        always = errors if always is None else (always & errors or always)
    return ", ".join(sorted(always or ()))


def _metrics() -> str:
    rows: list[tuple[object, ...]] = [
        (f"`{one.name}`", one.unit, one.direction or "neither", one.meaning) for one in METRICS.values()
    ]
    return "\n".join(["# Names of metrics\n", _NOTE, _table(("metric", "unit", "better", "meaning"), rows)])


def _record() -> str:
    schema = Record.model_json_schema()
    parts = ["# A record of the journal\n", _NOTE, _properties(schema)]
    for name, definition in schema.get("$defs", {}).items():
        if "properties" in definition:
            about = " ".join(definition.get("description", "").split())
            parts.append(f"## {name}\n\n{about}\n\n{_properties(definition)}")
    return "\n".join(parts)

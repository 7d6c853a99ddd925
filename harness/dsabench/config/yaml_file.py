"""Read a YAML file to plain data with the line of every key, so that later errors can name `file:line`.

It follows YAML 1.2's core schema, as editors do: `no`, `off` and `12:30` are text, `1e3` is a number, `010` is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml
from yaml.reader import Reader

from dsabench.errors import ConfigError, printable

try:  # The C parser is ten times as fast, but PyYAML may be built without it.
    from yaml import CSafeLoader as _Parser
except ImportError:
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

Plain = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
"""The values that JSON has."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""


class YamlPosition(NamedTuple):
    """Position of a key or list item; both count from 1."""

    line: int
    column: int


def key_text(path: KeyPath) -> str:
    """Such as `workloads[0].input_len`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


MAX_BYTES = 1 << 20

_ODD_BREAK = re.compile("[\r\x85\u2028\u2029]")
"""These end a line for the parser but not for every editor, so line numbers would differ."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """One YAML file: its data, and the position of every key."""

    file: str
    data: Mapping[str, Plain]
    places: Mapping[KeyPath, YamlPosition]
    origins: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Where keys stand in the file, if their data was put together from several sections."""

    def place(self, path: KeyPath) -> YamlPosition:
        """The position of a key, or of the nearest key above it that exists. `decode.hisparse` is also found as `decode: {hisparse: …}`."""
        path = self._written(path)
        if path not in self.places:
            path = tuple(word for key in path for word in (key.split(".", 1) if isinstance(key, str) else (key,)))
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.places[()]

    def error(self, message: str, path: KeyPath = ()) -> ConfigError:
        """A mistake at `path`. Text of the user cannot break its line."""
        path = self._written(path)
        key = printable(key_text(path)) or None
        return ConfigError(printable(message), file=self.file, line=self.place(path).line, key=key)

    def _written(self, path: KeyPath) -> KeyPath:
        """The path of a key in the file itself."""
        above = max((one for one in self.origins if path[: len(one)] == one), key=len, default=())
        return (*self.origins.get(above, ()), *path[len(above) :])


def shown_file(path: Path) -> str:
    """The path in error messages: relative if it lies below the working directory."""
    here = Path.cwd()
    return printable(str(path.relative_to(here) if path.is_relative_to(here) else path))


def read_yaml(path: Path) -> YamlFile:
    """Read one file.

    Raises:
        ConfigError: it cannot be read, or is no YAML mapping.

    """
    file = shown_file(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=file) from error
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> YamlFile:
    """Read the bytes of a file.

    Raises:
        ConfigError: no YAML mapping of plain values, too large, or a duplicate key.

    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB: not a config", file=file)
    text = _decode(raw, file)
    lines = text.removesuffix("\n").count("\n") + 1
    try:
        survey(text, file)
        node = _YamlLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else min(mark.line + 1, lines)
        raise ConfigError(_words(error, text, line), file=file, line=line) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {printable(str(error))}", file=file, line=1) from error
    if node is None:
        raise ConfigError("the file is empty; it must hold keys", file=file, line=1)
    build = _YamlReader(file, lines)
    data = build.value(node, ())
    if not isinstance(data, dict):
        line = min(node.start_mark.line + 1, lines)
        held = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError(f"must hold keys at the top, not {held}", file=file, line=line)
    return YamlFile(file, MappingProxyType(data), MappingProxyType({**build.places, (): YamlPosition(1, 1)}))


def _decode(raw: bytes, file: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"not UTF-8 (byte 0x{raw[error.start]:02x})", file=file, line=line) from error
    text = text.replace("\r\n", "\n")
    if odd := Reader.NON_PRINTABLE.search(text) or _ODD_BREAK.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise ConfigError(f"control character U+{ord(odd.group()):04X}", file=file, line=line)
    return text


def _words(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    """PyYAML's message in one line."""
    problem = error.problem or str(error)
    written = text.split("\n")[line - 1]
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "a tab in the indentation; YAML wants spaces"
    if "another document" in problem:
        return "a second document begins here (---); a file holds one"
    if "undefined alias" in problem:
        return "an alias (*name) to an anchor (&name) that does not exist; quote text that begins with *"
    if "cannot start any token" in problem:
        return "a character that YAML reserves; quote the text"
    if error.context and error.context_mark and "quoted" in error.context:
        return f"not valid YAML: {problem} {error.context} that begins in line {error.context_mark.line + 1}"
    return f"not valid YAML: {printable(' '.join(part for part in (problem, error.context) if part))}"


MAX_DEPTH = 40
MAX_VALUES = 100_000
"""Counted after anchors are expanded, because that is how a small file can become a huge one."""

_CORE_SCHEMA = [
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    ("tag:yaml.org,2002:int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
    ),
]  # https://yaml.org/spec/1.2.2/#1032-tag-resolution


class _YamlLoader(_Parser):
    """PyYAML's safe parser with YAML 1.2's rules for plain scalars."""

    yaml_implicit_resolvers = {None: _CORE_SCHEMA, "": _CORE_SCHEMA}  # noqa: RUF012 (PyYAML's way)


def survey(text: str, file: str) -> None:
    """Refuse what would overflow stack or memory of the composer. It reads only events.

    Raises:
        ConfigError: it is too deep or too long.
        yaml.YAMLError: it is no YAML.

    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_YamlLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > 2 * MAX_VALUES:
            line = 1 if event.start_mark is None else event.start_mark.line + 1
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"over {MAX_VALUES} values"
            raise ConfigError(f"{what}: not a config", file=file, line=line)


class _YamlReader:
    """Converts nodes to plain data and notes the position of each key. Used once per file."""

    def __init__(self, file: str, lines: int) -> None:
        self.file, self.lines = file, lines
        self.places: dict[KeyPath, YamlPosition] = {}
        self.values = 0

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Plain]:
        data: dict[str, Plain] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            here = (*path, key)
            if key in data:
                first = self.places[here].line
                raise self._error(f"the key stands twice; first in line {first}", key_node, here)
            self.places[here] = self._place(key_node)
            if path[-1:] == ("args",):  # the name that it has once it is loaded
                self.places[*path[:-1], f"args.{key}"] = self.places[here]
            data[key] = self.value(value_node, here)
        return data

    def _items(self, node: yaml.SequenceNode, path: KeyPath) -> Iterator[Plain]:
        for index, child in enumerate(node.value):
            here = (*path, index)
            self.places[here] = self._place(child)
            yield self.value(child, here)

    def value(self, node: yaml.Node, path: KeyPath) -> Plain:
        """The plain data of a node.

        Raises:
            ConfigError: a duplicate or non-text key, a tag or number that JSON lacks, anchors that expand to too much.

        """
        self.values += 1
        if self.values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise self._error("anchors (&name) expand to too much here, or an anchor holds itself", node, path)
        if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag.endswith(":seq"):
            return list(self._items(node, path))
        return self._scalar(node, path)

    def _key(self, node: yaml.Node, path: KeyPath) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error("a key must be text, not a list or mapping", node, path)
        if node.value == "<<" and not node.style:
            raise self._error("merge keys (<<) are not part of YAML 1.2; write the keys out", node, path)
        if not node.tag.endswith(":str"):
            raise self._error(
                f'the key {node.value[:40]} is read as a number, truth value or null; write "{node.value[:40]}"',
                node,
                path,
            )
        return str(node.value)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Plain:
        kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), node.value
        if not isinstance(node, yaml.ScalarNode):
            kind = "of a scalar"
        if kind == "str":
            return str(text)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in {"true", "false"}:
            return bool(text.lower() == "true")
        try:
            if kind == "int":
                return self._int(text, node, path)
            if kind == "float":
                return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text, flags=re.IGNORECASE))
        except ValueError as error:
            raise self._error(f"the tag !!{kind} does not fit the value", node, path) from error
        raise self._error(f"the tag {node.tag[:60]} is not supported", node, path)

    def _int(self, text: str, node: yaml.Node, path: KeyPath) -> int:
        if re.match(r"^[-+]?0[0-9]", text):
            raise self._error(
                f"{text[:40]} is octal to some readers of YAML and decimal to others; drop the leading 0 or quote it",
                node,
                path,
            )
        number = int(text[:40], 0)
        if len(text) > 40 or abs(number) >= 1 << 63:
            raise self._error("a number beyond 64 bits", node, path)
        return number

    def _place(self, node: yaml.Node) -> YamlPosition:
        return YamlPosition(min(node.start_mark.line + 1, self.lines), node.start_mark.column + 1)

    def _error(self, message: str, node: yaml.Node, path: KeyPath) -> ConfigError:
        key = printable(key_text(path)) or None
        return ConfigError(printable(message), file=self.file, line=self._place(node).line, key=key)

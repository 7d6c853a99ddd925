"""A YAML file → plain data plus the line of every key, so that each later error can name `file:line`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml
from yaml.reader import Reader

from dsabench.config.plain import KeyPath, Place, Plain, key_text
from dsabench.config.yaml_nodes import Build, Loader, survey
from dsabench.errors import ConfigError, printable

MAX_BYTES = 1 << 20

_ODD_BREAK = re.compile("[\r\x85\u2028\u2029]")
"""Ends a line for the parser but not for every editor, so that line numbers would differ."""


@dataclass(frozen=True, slots=True)
class Source:
    """One YAML file: what it says and where it says it."""

    file: str
    data: Mapping[str, Plain]
    places: Mapping[KeyPath, Place]

    def place(self, path: KeyPath) -> Place:
        """The place of a key, or of the nearest key around it that exists."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.places[()]

    def error(self, message: str, path: KeyPath = ()) -> ConfigError:
        """A mistake at `path`; what the user wrote cannot break its line."""
        key = printable(key_text(path)) or None
        return ConfigError(printable(message), file=self.file, line=self.place(path).line, key=key)


def shown_file(path: Path) -> str:
    """The path as errors name it: relative where it lies below the working directory."""
    here = Path.cwd()
    return printable(str(path.relative_to(here) if path.is_relative_to(here) else path))


def read_yaml(path: Path) -> Source:
    """Read one file.

    Raises:
        ConfigError: it cannot be read, or is not a YAML mapping.

    """
    file = shown_file(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=file) from error
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> Source:
    """The same of bytes at hand.

    Raises:
        ConfigError: not a YAML mapping of plain values, too large, or a key twice.

    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB: not a config", file=file)
    text = _decode(raw, file)
    lines = text.removesuffix("\n").count("\n") + 1
    try:
        survey(text, file)
        node = Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else min(mark.line + 1, lines)
        raise ConfigError(_words(error, text, line), file=file, line=line) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {printable(str(error))}", file=file, line=1) from error
    if node is None:
        raise ConfigError("the file is empty; it must hold keys", file=file, line=1)
    build = Build(file, lines)
    data = build.value(node, ())
    if not isinstance(data, dict):
        line = min(node.start_mark.line + 1, lines)
        held = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError(f"must hold keys at the top, not {held}", file=file, line=line)
    return Source(file, MappingProxyType(data), MappingProxyType({**build.places, (): Place(1, 1)}))


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
    """PyYAML's complaint in one line."""
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

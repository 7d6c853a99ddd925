"""Changes to a source file by the positions of its syntax tree, so that every other byte stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


class NotUnderstoodError(Exception):
    """The source is not what a touch point expects; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


class Source:
    """One parsed file. Columns of the tree count UTF-8 bytes, and so does everything here."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.newline = "\r\n" if b"\r\n" in data else "\n"
        try:
            data.decode()  # in another encoding the tree's columns are not those of the file
            self.tree = ast.parse(data)
        except (SyntaxError, ValueError) as error:
            raise NotUnderstoodError(f"is no valid Python in UTF-8: {error}") from error
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def function(self, name: str) -> ast.FunctionDef:
        """The only function of that name, wherever it stands."""
        return self.only((n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and n.name == name), name)

    def only(self, found: Iterator[Node], what: str) -> Node:
        """The one node, or a refusal that says what there is none of, or several."""
        nodes = list(found)
        if len(nodes) != 1:
            raise NotUnderstoodError(f"has {what} {len(nodes)} times, expected once")
        return nodes[0]

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        return self.data[slice(*self.span(node))].decode()

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First byte and the one behind the last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def before(self, statement: ast.stmt, lines: Sequence[str]) -> Edit:
        """Put lines before a statement, indented like it."""
        start = self._starts[statement.lineno - 1]
        indent = " " * statement.col_offset
        if self.data[start : start + statement.col_offset].strip():
            raise NotUnderstoodError(f"line {statement.lineno}: two statements on one line")
        return Edit(start, start, "".join(f"{indent}{line}".rstrip() + self.newline for line in lines))

    def around(self, node: ast.expr) -> ast.stmt:
        """The innermost statement that holds an expression."""
        start, end = self.span(node)
        spans = ((self.span(n), n) for n in ast.walk(self.tree) if isinstance(n, ast.stmt))
        return min(((s, n) for s, n in spans if s[0] <= start and end <= s[1]), key=lambda one: one[0][1] - one[0][0])[
            1
        ]

    def call(self, node: ast.expr, function: str, arguments: Sequence[str]) -> Edit:
        """Put a call in the place of an expression; its arguments end with that expression, one a line."""
        start, end = self.span(node)
        line = self.data[self._starts[node.lineno - 1] : start].decode()
        indent = line[: len(line) - len(line.lstrip())]
        words = [*arguments, self.data[start:end].decode()]
        inside = "".join(f"{self.newline}{indent}    {word}," for word in words)
        return Edit(start, end, f"{function}({inside}{self.newline}{indent})")

    def apply(self, edits: Sequence[Edit]) -> bytes:
        """The file with all edits made; they must not overlap."""
        data, upto = self.data, len(self.data)
        for edit in sorted(edits, key=lambda one: one.start, reverse=True):
            assert edit.end <= upto, "edits overlap"
            data, upto = data[: edit.start] + edit.text.encode() + data[edit.end :], edit.start
        return data

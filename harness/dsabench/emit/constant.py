"""A rule for `flashmla_auto` as numbers in the runtime's own source: two places, no table, no loader."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from dsabench.emit.edits import Edit, NotUnderstoodError, Source
from dsabench.emit.payload import payload
from dsabench.emit.touch import (
    backend_file,
    changed_source,
    default_of_fp8,
    defaults_file,
    keeps_shipped,
    prefill_function,
)
from dsabench.emit.tree import Tree
from dsabench.model.tuned_table import RatioRule

_LINE = 88
"""Characters of a line of sglang's at most."""
_NAME = "prefers_sparse"


def constant_patch(tree: Tree, rule: RatioRule, measured: str) -> dict[str, bytes]:
    """File → its content with the rule. `measured` says for a comment on what: `an H200 with 16 and 64 heads per rank`.

    Raises:
        InputError: a source of unknown form, or one that has such a rule for Hopper already.

    """
    changes: dict[str, Callable[[Source], list[Edit]]] = {
        backend_file(tree): lambda source: _choose(source, rule, measured),
        defaults_file(tree): _make_default,
    }
    return {file: changed_source(tree, file, [change]) for file, change in changes.items()}


def constant_script(rule: RatioRule) -> str:
    """A program that times both kernels with SGLang alone, finds the pair of numbers, and says what this rule loses."""
    return payload("tune_dsa_prefill.txt").replace(
        "NEW_LEAST, RATIO", f"{rule.from_new_tokens or 1}, {math.ceil(rule.kv_per_new_token)}"
    )


def constant_test(tree: Tree, rule: RatioRule) -> str:
    """The unit test of the boundary; SUITE stands for its suite."""
    hoisted, imported = _platform_calls(prefill_function(Source(tree.read(backend_file(tree)) or b"")))
    least = rule.from_new_tokens or 1
    at = math.ceil(least * rule.kv_per_new_token)
    fewer = f'        self.assertEqual(chosen({least - 1}, {least}), "flashmla_kv")\n' if least > 1 else ""
    filled = {
        "NEW_LEAST": str(least),
        "KV_BELOW": str(at - 1),
        "KV_AT": str(at),
        "FEWER": fewer,
        "MOCKED": "Mock(\n" + "".join(f"        {name}=lambda: {value},\n" for name, value in hoisted) + "    )"
        if hoisted
        else "Mock()",
        "IMPORTED": "".join(f', patch(\n        "{name}", lambda: {value}\n    )' for name, value in imported),
    }
    text = payload("constant_test.txt")
    for word, value in filled.items():  # none of them is part of another word of the text
        text = text.replace(word, value)
    return text


def _platform_calls(function: ast.FunctionDef) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What a test must stand in for, with its value: attributes of the backend, and names that the function imports.

    0.5.20 and later keep the functions in the backend; before, each call imported them.
    """
    values = {"is_blackwell": "is_blackwell", "get_device_sm": "90"}
    hoisted = [
        (n.value.attr, values.get(n.targets[0].id, "False"))
        for n in function.body
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Attribute) and isinstance(n.targets[0], ast.Name)
    ]
    imported = [
        (f"{n.module}.{name.name}", values[name.name])
        for n in function.body
        if isinstance(n, ast.ImportFrom)
        for name in n.names
        if name.name in values
    ]
    return hoisted, imported


def _choose(source: Source, rule: RatioRule, measured: str) -> list[Edit]:
    """The Blackwell check moves from the branch into its condition, and Hopper gets a condition of its own."""
    function = prefill_function(source)
    compares = (
        n for n in ast.walk(function) if isinstance(n, ast.If) and isinstance(n.test, ast.Compare) and _is_ratio(n.test)
    )
    inner = source.only(compares, "the ratio of KV to new tokens")
    outers = (
        n
        for n in ast.walk(function)
        if isinstance(n, ast.If)
        and inner in n.body
        and isinstance(n.test, ast.BoolOp)
        and isinstance(n.test.op, ast.And)
    )
    outer = source.only(outers, "the branch around that ratio")
    assert isinstance(outer.test, ast.BoolOp)
    first, second = outer.test.values[:2]
    if source.text(first) != "is_blackwell()":
        raise NotUnderstoodError(f"{function.name} does not ask for Blackwell first")
    assert isinstance(inner.test, ast.Compare)
    kv, new = source.text(inner.test.left), source.text(inner.test.comparators[0]).partition(" ")[0]
    conditions = [
        *([f"{new} >= {rule.from_new_tokens}"] if rule.from_new_tokens else []),
        f"{kv} < {new} * {rule.kv_per_new_token:g}",
        *(f"not {check}" for check in keeps_shipped(source, function)),
    ]
    lines = [
        "if is_blackwell():",
        f"    {_NAME} = {source.text(inner.test)}",
        "else:",
        f"    # Hopper, measured on {measured}.",
        f"    {_NAME} = (",
        *(f"        {'and ' if at else ''}{condition}" for at, condition in enumerate(conditions)),
        "    )",
    ]
    asked = source.span(first)[0], source.span(second)[0]
    return [Edit(*asked, ""), source.before(inner, lines), Edit(*source.span(inner.test), _NAME)]


def _is_ratio(test: ast.Compare) -> bool:
    """`total_kv_tokens < total_q_tokens * 512`."""
    right = test.comparators[0]
    return (
        isinstance(test.ops[0], ast.Lt)
        and isinstance(right, ast.BinOp)
        and isinstance(right.op, ast.Mult)
        and isinstance(right.right, ast.Constant)
    )


def _make_default(source: Source) -> list[Edit]:
    """`flashmla_auto` for prefill where it would be flashmla_kv: on Hopper over an fp8 cache."""
    value = default_of_fp8(source)
    if value is None:  # a version whose default it is
        return []
    chosen = '"flashmla_auto"'
    if isinstance(value, ast.Name):  # "trtllm" on Blackwell
        chosen = f"{value.id} if major >= 10 else {chosen}"
    statement = source.around(value)
    start, end = source.span(value)
    line, indent = source.text(statement), " " * statement.col_offset
    if len(indent) + len(line) + len(chosen) - (end - start) > _LINE:
        chosen = f"({source.newline}{indent}    {chosen}{source.newline}{indent})"
    return [Edit(start, end, chosen)]

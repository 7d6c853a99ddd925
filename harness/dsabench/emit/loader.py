"""The loader of tables and its unit test, cut to the kinds of table that are delivered."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from dsabench.emit.payload import payload
from dsabench.emit.touch import LOADER

_ENTRIES = {
    "flashmla_auto": ("prefill_impl", "default_prefill_backend"),
    "mha_threshold": ("dense_threshold", "dense_threshold_of_backend"),
    "hisparse": ("hisparse_config",),
}
"""Kind → the functions of the loader that the runtime's code calls."""
KINDS = tuple(_ENTRIES)
"""What sglang's code can read from a table; other kinds are flags."""
_ALWAYS = ("FOLDER_VARIABLE", "SHIPPED", "_load", "_read")
_CHECKS = "_CHECKS"


def loader_of(kinds: Collection[str]) -> str:
    """What reads these kinds, without the functions and imports that only others need."""
    text = _without(payload("dsa_tuned.py"), _checks_of_others(kinds))
    tree = ast.parse(text)
    named = {name: node for node in tree.body for name in _defined(node)}
    kept, wanted = set[str](), [*_ALWAYS, *(entry for kind in kinds for entry in _ENTRIES[kind])]
    while wanted:
        name = wanted.pop()
        if name in named and name not in kept:
            kept.add(name)
            wanted += _used(named[name])
    drop: list[ast.stmt] = []
    for node in tree.body:
        defined = set(_defined(node))
        if defined and not defined & kept:
            drop.append(node)
    return _without(text, drop)


ENVIRON = "srt/environ.py"
_BESIDE = b"    SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD = "


def with_variable(environ: bytes | None, loader: bytes) -> dict[str, bytes]:
    """File → content: the runtime's registry of variables with that of the folder, and the loader that reads it there. Nothing where
    the registry has no section for DSA's.
    """
    if environ is None or environ.count(_BESIDE) != 1:
        return {}
    read = {LOADER: _with_lookup(loader.decode()).encode()}
    if b"SGLANG_DSA_CONFIG_DIR" in environ:
        return read
    declared = b"    # Folder of tuned tables, looked at before those that are delivered\n    SGLANG_DSA_CONFIG_DIR = EnvStr(None)\n"
    return {ENVIRON: environ.replace(_BESIDE, declared + _BESIDE), **read}


def kinds_read(loader: bytes) -> set[str]:
    """The kinds that a loader which is there already reads."""
    return {kind for kind, entries in _ENTRIES.items() if any(f"def {entry}(".encode() in loader for entry in entries)}


def is_untouched(loader: bytes) -> bool:
    """Whether a loader that is there already is one of those that are written here."""
    text = loader_of(kinds_read(loader))
    return loader in {text.encode(), _with_lookup(text).encode()}


def _with_lookup(loader: str) -> str:
    """The loader that reads its folder's variable where the runtime declares its variables."""
    read = loader.replace("os.environ.get(FOLDER_VARIABLE)", "envs.SGLANG_DSA_CONFIG_DIR.get()")
    return read.replace("from typing import Any\n", "from typing import Any\n\nfrom sglang.srt.environ import envs\n")


def loader_test_of(kinds: Collection[str]) -> str:
    """The unit test of that loader: without the tests of functions that it lacks."""
    text = payload("upstream_test.txt")
    there = {name for node in ast.parse(loader_of(kinds)).body for name in _defined(node)}
    drop: list[ast.stmt] = []
    gone = {entry for entries in _ENTRIES.values() for entry in entries} - there
    for _ in range(2):  # helpers first, then the tests that call them
        for each in ast.parse(text).body:
            if isinstance(each, ast.ClassDef):
                lacking = [node for node in each.body if isinstance(node, ast.FunctionDef) and _used(node) & gone]
                drop += lacking
                gone |= {node.name for node in lacking}
    text = _without(text, drop)
    tree = ast.parse(text)
    used = {name for node in tree.body for name in _used(node)}
    unused = [node for node in tree.body if isinstance(node, ast.Assign) and not set(_defined(node)) & used]
    return _without(text, unused)


def _checks_of_others(kinds: Collection[str]) -> Iterator[ast.expr]:
    """The entries of `_CHECKS` for other kinds, key and value."""
    for node in ast.parse(payload("dsa_tuned.py")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and _CHECKS in _defined(node):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value not in kinds:
                    value.lineno = key.lineno  # the whole entry
                    yield value


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement gives the module."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        case ast.Import(names=names) | ast.ImportFrom(names=names, module=str()) if (
            getattr(node, "module", "") != "__future__"
        ):
            return [one.asname or one.name for one in names]
        case _:
            return []


def _used(node: ast.AST) -> set[str]:
    """Every name and attribute in it."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _without(text: str, nodes: Collection[ast.stmt | ast.expr] | Iterator[ast.expr]) -> str:
    """The text without the lines of these nodes, their decorators and the comments and blank lines above them."""
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for node in nodes:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        while first > 1 and isinstance(node, ast.stmt) and lines[first - 2].lstrip()[:1] in {"", "#"}:
            first -= 1
        gone |= set(range(first, (node.end_lineno or node.lineno) + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in gone)

"""Whether the modules of a patched tree import, as far as the interpreter beside it has what they need."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dsabench.emit.tree import Tree

_PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
said = {}
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
        said[name] = None
    except BaseException as error:
        said[name] = f"{type(error).__name__}: {error}"
        for half in [known for known in sys.modules if known.partition(".")[0] == "sglang"]:
            del sys.modules[half]
sys.stdout.write("\\n@" + json.dumps(said))
"""
_TIMEOUT_S = 300.0


def import_changed(tree: Tree, files: Iterable[str]) -> dict[str, str | None]:
    """Module → None where it imports, else what stands in the way. Nothing compiled is left behind."""
    modules = ["sglang." + file.removesuffix(".py").replace("/", ".") for file in files if file.endswith(".py")]
    command = [str(interpreter_of(tree)), "-I", "-B", "-c", _PROGRAM, str(tree.package.parent), *modules]
    with tempfile.TemporaryDirectory(prefix="dsabench-import-") as folder:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return dict.fromkeys(modules, f"{type(error).__name__}: the interpreter did not answer")
    said = done.stdout.rpartition("\n@")[2]
    try:
        answers: dict[str, str | None] = json.loads(said)
    except ValueError:
        return dict.fromkeys(modules, f"the interpreter ended with {done.returncode}")
    return answers


def interpreter_of(tree: Tree) -> Path:
    """The one whose site-packages the tree lies in, else this one."""
    for above in tree.package.parents:
        if above.name == "site-packages":
            python = above.parents[2] / "bin" / "python"
            return python if python.is_file() else Path(sys.executable)
    return Path(sys.executable)


def broken_by_patch(answers: dict[str, str | None]) -> str | None:
    """The first module that fails for a reason that is the patch's own."""
    own = ("SyntaxError", "IndentationError", "NameError", "UnboundLocalError")
    for module, why in answers.items():
        if why is not None and (why.startswith(own) or "dsa_tuned" in why):
            return f"{module}: {why}"
    return None

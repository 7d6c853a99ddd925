"""Where each version of the runtime asks for a tuned default: one function per kind of table and form of source.

Positions are found by the shape of the code (reference: sglang 0.5.9, 0.5.10, 0.5.12, 0.5.16, 0.5.23). What does not
have that shape is refused, so that no other version is changed by guessing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dsabench.emit.edits import Edit, NotUnderstoodError, Source
from dsabench.emit.tree import Tree
from dsabench.errors import InputError

LOADER = "srt/layers/attention/dsa_tuned.py"
TABLES = "srt/layers/attention/dsa_tuned_configs"
_PACKAGE = "sglang.srt.layers.attention"
_IMPORT = f"from {_PACKAGE} import dsa_tuned"
_DECLARED = "_dsa_split_backend_resolution"
_SETTERS = ("_set_default_nsa_backends", "_set_default_dsa_backends")
"""Up to 0.5.12, and in 0.5.13 and 0.5.14. 0.5.15 and later resolve the default in arg_groups/overrides.py."""
_HISPARSE_KEYS = ("device_buffer_size", "host_to_device_ratio", "swap_in_block_size")


@dataclass(frozen=True, slots=True)
class Touched:
    """One file's change. `file` is relative to the package."""

    file: str
    before: bytes
    after: bytes


def touch(tree: Tree, kinds: set[str]) -> list[Touched]:
    """The changed files for these kinds of tables; none is written. What asks for tables already stays as it is.

    Raises:
        InputError: the version lacks the kind, or its source is not of a known form; with the file and the reason.

    """
    wanted: dict[str, list[Change]] = {}
    for kind in sorted(kinds):
        for file, change in _PLACES[kind](tree).items():
            wanted.setdefault(file, []).append(change)
    touched = []
    for file, changes in wanted.items():
        data = tree.read(file) or b""
        after = changed_source(tree, file, [change for change in changes if not _asks(data, change)])
        if after != data:
            touched.append(Touched(file, data, after))
    return touched


def changed_source(tree: Tree, file: str, changes: Sequence[Change]) -> bytes:
    """A file of the tree with all changes made.

    Raises:
        InputError: its source is not of a known form; with the file and the reason.

    """
    try:
        source = Source(tree.read(file) or b"")
        edits = [edit for change in changes for edit in change(source)]
        after = source.apply(list(dict.fromkeys(edits)))  # two of them may want one import
        ast.parse(after)
    except NotUnderstoodError as error:
        raise InputError(
            f"{tree.package / file}: not changed: sglang {tree.version} has an unknown form here: {error}"
        ) from error
    return after


Change = Callable[[Source], list[Edit]]
Changes = Mapping[str, Change]


def _flashmla_auto(tree: Tree) -> Changes:
    return {backend_file(tree): _choose_kernel, defaults_file(tree): _default_backend}


def defaults_file(tree: Tree) -> str:
    """Where the version chooses its default backends.

    Raises:
        InputError: in no known place.

    """
    defaults = _first(tree, "srt/arg_groups/overrides.py", "srt/server_args.py", having=b"def _dsa_split_backend_resol")
    for name in _SETTERS:
        defaults = defaults or _first(tree, "srt/server_args.py", having=f"def {name}".encode())
    if defaults is None:
        raise InputError(f"{tree.package}: sglang {tree.version} chooses its sparse backends in no known place")
    return defaults


def _mha_threshold(tree: Tree) -> Changes:
    files = ("srt/arg_groups/model_hook.py", "srt/server_args.py")
    setter = _first(tree, *files, having=b"SA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD.set(")
    return {setter: _default_threshold} if setter is not None else {backend_file(tree): _backend_threshold}


def _hisparse(tree: Tree) -> Changes:
    file = _first(tree, "srt/mem_cache/sparsity/factory.py", having=b"host_to_device_ratio")
    if file is None:
        raise InputError(f"sglang {tree.version} has no HiSparse (it came with 0.5.10): a hisparse table says nothing")
    return {file: _hisparse_defaults}


_PLACES: dict[str, Callable[[Tree], Changes]] = {
    "flashmla_auto": _flashmla_auto,
    "mha_threshold": _mha_threshold,
    "hisparse": _hisparse,
}


def backend_file(tree: Tree) -> str:
    """Where the version chooses the kernel of a prefill batch.

    Raises:
        InputError: it has no `flashmla_auto`.

    """
    files = ("srt/layers/attention/dsa_backend.py", "srt/layers/attention/nsa_backend.py")
    file = _first(tree, *files, having=b"enable_auto_select_prefill_impl")
    if file is None:
        raise InputError(f"{tree.package}: sglang {tree.version} has no sparse attention backend with flashmla_auto")
    return file


def _first(tree: Tree, *files: str, having: bytes) -> str | None:
    """The first of the files that exists and has these bytes."""
    return next((file for file in files if having in (tree.read(file) or b"")), None)


def _choose_kernel(source: Source) -> list[Edit]:
    """The table before the runtime's own rule, inside `if not self.use_mha and self.enable_auto_select_prefill_impl`."""
    function = prefill_function(source)
    branch = function.body[-1]
    is_choice = isinstance(branch, ast.If) and "enable_auto_select_prefill_impl" in source.text(branch.test)
    if not isinstance(branch, ast.If) or not is_choice or branch.orelse:
        raise NotUnderstoodError(f"{function.name} does not end with the choice of flashmla_auto")
    prefix = "dsa" if "dsa" in function.name else "nsa"
    keep = keeps_shipped(source, function)
    impl = f"self.{prefix}_prefill_impl"
    if impl not in source.text(branch):
        raise NotUnderstoodError(f"{function.name} does not set {impl}")
    lines = [
        "tuned = dsa_tuned.prefill_impl(",
        "    self,",
        "    forward_batch,",
        *(f"    {'keep=' if at == 0 else 'or '}{what}" + "," * (at == len(keep) - 1) for at, what in enumerate(keep)),
        ")",
        "if tuned is not None:",
        f"    {impl} = tuned",
        "    return",
    ]
    return [*_hoisted(source), source.before(branch.body[0], lines)]


def _hoisted(source: Source) -> list[Edit]:
    """The import among the module's own, in their order: the function runs for every batch. Nothing where it is there."""
    imports = [n for n in source.tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("sglang.")]
    if any(source.text(n) == _IMPORT for n in imports):
        return []
    later = next((n for n in imports if (n.module or "") > _PACKAGE), None)
    if later is None:
        raise NotUnderstoodError(f"it imports nothing of sglang behind {_PACKAGE}")
    return [source.before(later, [_IMPORT])]


def keeps_shipped(source: Source, function: ast.FunctionDef) -> list[str]:
    """Calls that say that the runtime's own rule holds for a batch: under context parallelism, and in a CUDA graph.

    Raises:
        NotUnderstoodError: the function does not ask for context parallelism.

    """
    check = "is_dsa_enable_prefill_cp" if "dsa" in function.name else "is_nsa_enable_prefill_cp"
    if check not in source.text(function):
        raise NotUnderstoodError(f"{function.name} does not ask for context parallelism")
    in_graph = [n for n in ast.walk(function) if isinstance(n, ast.If) and "cuda_graph()" in source.text(n.test)]
    return [f"{check}()", *(source.text(each) for node in in_graph for each in _alternatives(node.test))]


def _alternatives(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


def _default_backend(source: Source) -> list[Edit]:
    """The default of Hopper with fp8, where it is flashmla_kv. Versions that take flashmla_auto there need no change."""
    value = default_of_fp8(source)
    if value is None:
        return []
    is_declared = any(isinstance(n, ast.FunctionDef) and n.name == _DECLARED for n in ast.walk(source.tree))
    asked = ["view", "hf_config"] if is_declared else ["self", "self.get_model_config().hf_config"]
    return _wrap(source, value, "dsa_tuned.default_prefill_backend", asked)


def default_of_fp8(source: Source) -> ast.expr | None:
    """The prefill backend that Hopper gets over an fp8 cache; None where it is flashmla_auto.

    Raises:
        NotUnderstoodError: it is not found, or several are.

    """
    names = {n.name for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)}
    function = source.function(next((name for name in (_DECLARED, *_SETTERS) if name in names), _SETTERS[0]))
    assigns = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and _is_prefill_target(n.targets[0])]
    values = [n.value for n in assigns if isinstance(n.value, ast.Constant | ast.Name)]
    if any(isinstance(value, ast.Constant) and value.value == "flashmla_auto" for value in values):
        return None
    branch = source.only(
        (
            n
            for n in ast.walk(function)
            if isinstance(n, ast.If) and source.text(n.test) == 'kv_cache_dtype == "fp8_e4m3"'
        ),
        f"the branch for fp8 in {function.name}",
    )
    inside = {id(n) for statement in branch.body for n in ast.walk(statement)}
    wanted = (value for value in values if id(value) in inside and _may_be_flashmla_kv(value))
    return source.only(wanted, f"the prefill default for fp8 in {function.name}")


def _default_threshold(source: Source) -> list[Edit]:
    """The value that the runtime sets where the user set none: `envs.….set(get_…_index_topk(hf_config))`."""
    wanted = (n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and _sets_threshold(source, n))
    call = source.only(wanted, "the default of the dense attention threshold")
    holds = (
        n
        for n in ast.walk(source.tree)
        if isinstance(n, ast.FunctionDef) and n.lineno <= call.lineno <= (n.end_lineno or 0) and n.args.args
    )
    function = source.only(holds, "a function around the default of the dense attention threshold")
    args, value = function.args.args[0].arg, call.args[0]
    return _wrap(source, value, "dsa_tuned.dense_threshold", [args, "hf_config"])


def _backend_threshold(source: Source) -> list[Edit]:
    """0.5.9 has no variable: `mha_max_kv_len` is index_topk unless the prefill backend is trtllm."""
    function = prefill_function(source)
    assigns = (
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id == "mha_max_kv_len"
    )
    value = source.only(assigns, "mha_max_kv_len").value
    if not isinstance(value, ast.IfExp) or source.text(value.orelse) != "self.nsa_index_topk":
        raise NotUnderstoodError("mha_max_kv_len is not index_topk")
    return [*_hoisted(source), source.call(value.orelse, "dsa_tuned.dense_threshold_of_backend", ["self"])]


def _hisparse_defaults(source: Source) -> list[Edit]:
    """Before the settings are taken out of the user's JSON."""
    function = source.function("_parse_sparse_config")
    first = source.only(
        (
            n
            for n in function.body
            if isinstance(n, ast.Assign) and source.text(n).startswith("top_k = extra_config.pop(")
        ),
        "the default of top_k",
    )
    accepts = tuple(key for key in _HISPARSE_KEYS if f'extra_config.pop("{key}"' in source.text(function))
    lines = [_IMPORT, ""]
    if function.args.args:
        args = function.args.args[0].arg
        config = f"{args}.get_model_config().hf_config"
    else:
        args, config = "server_args", "model_config_of(server_args).hf_config"
        lines = [
            "from sglang.srt.arg_groups.overrides import model_config_of",
            _IMPORT,
            "from sglang.srt.runtime_context import get_server_args",
            "",
            "server_args = get_server_args()",
        ]
    call = [
        "extra_config = dsa_tuned.hisparse_config(",
        "    extra_config,",
        f"    {args},",
        f"    {config},",
        "    accepts=(" + ", ".join(f'"{key}"' for key in accepts) + "),",
        ")",
    ]
    return [source.before(first, [*lines, *call])]


def _wrap(source: Source, value: ast.expr, function: str, arguments: list[str]) -> list[Edit]:
    """Ask the loader with the runtime's own value, which it gives back where no table matches."""
    return [source.before(source.around(value), [_IMPORT, ""]), source.call(value, function, arguments)]


_CALLS: Mapping[Change, bytes] = {
    _choose_kernel: b"dsa_tuned.prefill_impl(",
    _default_backend: b"dsa_tuned.default_prefill_backend(",
    _default_threshold: b"dsa_tuned.dense_threshold(",
    _backend_threshold: b"dsa_tuned.dense_threshold_of_backend(",
    _hisparse_defaults: b"dsa_tuned.hisparse_config(",
}


def _asks(data: bytes, change: Change) -> bool:
    """Whether a checkout has the call already: an earlier pull request was merged."""
    return _CALLS[change] in data


def prefill_function(source: Source) -> ast.FunctionDef:
    """The function that decides the kernel of a prefill batch.

    Raises:
        NotUnderstoodError: there is none, or several.

    """
    names = ("set_dsa_prefill_impl", "set_nsa_prefill_impl")
    found: Iterator[ast.FunctionDef] = (
        n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef) and n.name in names
    )
    return source.only(found, "the function that decides a prefill's kernel")


def _is_prefill_target(target: ast.expr) -> bool:
    """`self.nsa_prefill_backend`, `self.dsa_prefill_backend` or `declared["dsa_prefill_backend"]`."""
    if isinstance(target, ast.Attribute):
        return target.attr in ("nsa_prefill_backend", "dsa_prefill_backend")
    key = target.slice if isinstance(target, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == "dsa_prefill_backend"


def _may_be_flashmla_kv(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) or (isinstance(value, ast.Constant) and value.value == "flashmla_kv")


def _sets_threshold(source: Source, call: ast.Call) -> bool:
    is_set = isinstance(call.func, ast.Attribute) and call.func.attr == "set" and len(call.args) == 1
    return (
        is_set
        and source.text(call.func).endswith("SA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD.set")
        and isinstance(call.args[0], ast.Call)
        and source.text(call.args[0].func) in ("get_nsa_index_topk", "get_dsa_index_topk")
    )

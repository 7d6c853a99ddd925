"""Applies tuned tables to sglang at start-up through its hooks (0.5.12 and later); nothing of it is changed on disk.

What the user sets by flag or environment variable wins, and SGLANG_PLUGINS can leave the plugin out.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from . import dsa_tuned

logger = logging.getLogger(__name__)

_GRAPHS = "sglang.srt.model_executor.runner_backend_utils"
_IN_GRAPH = (
    (f"{_GRAPHS}.breakable_cuda_graph.context", "is_in_breakable_cuda_graph"),
    (f"{_GRAPHS}.tc_piecewise_cuda_graph", "is_in_tc_piecewise_cuda_graph"),
    (
        "sglang.srt.compilation.piecewise_context_manager",
        "is_in_piecewise_cuda_graph",
    ),
)
_PATCHED = (
    "srt/layers/attention/dsa_backend.py",
    "srt/layers/attention/nsa_backend.py",
    "srt/arg_groups/model_hook.py",
    "srt/arg_groups/overrides.py",
    "srt/server_args.py",
    "srt/mem_cache/sparsity/factory.py",
)
_THRESHOLDS = (
    "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD",
    "SGLANG_NSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD",
)


def register() -> None:
    """Entry point of the group sglang.srt.plugins: ask for hooks where there are tables, and the places for them."""
    try:
        sglang = importlib.import_module("sglang")
    except ModuleNotFoundError:
        logger.warning("DSA tuned tables: no sglang here; the plugin does nothing.")
        return
    roots = sglang.__path__
    if _is_patched(roots):
        logger.warning(
            "DSA tuned tables: sglang is patched with tables; the plugin does nothing."
        )
        return
    names = sorted(
        file.name for folder in _folders() for file in folder.glob("*,*.json")
    )
    if not names:
        logger.warning("DSA tuned tables of the plugin: none")
    hooks: list[Hook] = []
    for kind in sorted(_HOOKS.keys() & {name.partition(",")[0] for name in names}):
        found = [
            next((place for place in places if _exists(place, roots)), None)
            for places in _HOOKS[kind]
        ]
        if None in found:
            missing = _HOOKS[kind][found.index(None)][0][0]
            logger.warning(
                "DSA tuned tables: sglang %s has no %s; %s tables are left out.",
                *(getattr(sglang, "__version__", ""), missing, kind),
            )
            names = [name for name in names if not name.startswith(f"{kind},")]
            continue
        hooks += [place for place in found if place is not None]
    if hooks:
        registry = importlib.import_module("sglang.srt.plugins.hook_registry")
        for target, hook, when in hooks:
            registry.HookRegistry.register(target, hook, registry.HookType[when])
        logger.warning("DSA tuned tables of the plugin: %s", "; ".join(names))


def _exists(place: Hook, roots: Iterable[str]) -> bool:
    """Whether the installed version has a hook's target. Nothing is imported: sglang's modules are heavy, and a hook must
    be there before others take the function by name.
    """
    parts = place[0].split(".")[1:]
    for root in roots:
        for end in range(1, len(parts)):
            file = Path(root, *parts[:end]).with_suffix(".py")
            if file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                return all(
                    re.search(rf"^\s*(?:def|class) {name}\b", text, re.MULTILINE)
                    for name in parts[end:]
                )
    return False


def _is_patched(roots: Iterable[str]) -> bool:
    """Whether a module of sglang asks for tables; an upgrade leaves a patch's own files behind, which nobody asks."""
    asked = (Path(root, name) for root in roots for name in _PATCHED)
    return any(file.is_file() and b"dsa_tuned" in file.read_bytes() for file in asked)


def _folders() -> Iterator[Path]:
    if given := os.environ.get(dsa_tuned.FOLDER_VARIABLE):
        yield Path(given)
    yield dsa_tuned.SHIPPED


def choose_kernel(_: Any, backend: Any, forward_batch: Any = None) -> None:
    """After the runtime's own choice for a batch."""
    if backend.use_mha or not backend.enable_auto_select_prefill_impl:
        return
    impl = dsa_tuned.prefill_impl(backend, forward_batch, keep=_keeps(backend))
    if impl is not None:
        prefix = "dsa" if hasattr(backend, "dsa_prefill_impl") else "nsa"
        setattr(backend, f"{prefix}_prefill_impl", impl)


def _keeps(backend: Any) -> bool:
    """Whether the runtime's own rule holds: context parallelism, or inside a graph."""
    module = sys.modules[type(backend).__module__]
    names = ("is_dsa_enable_prefill_cp", "is_nsa_enable_prefill_cp")
    checks = [getattr(module, name, None) for name in names]
    checks += [
        getattr(sys.modules[place], name, None)
        for place, name in _IN_GRAPH
        if place in sys.modules
    ]
    return any(check() for check in checks if check is not None)


def declare_backend(declared: dict[str, Any], view: Any) -> dict[str, Any]:
    """After the default backends were declared (0.5.15 and later)."""
    if view.enable_hisparse or view.kv_cache_dtype != "fp8_e4m3":
        return declared
    shipped = declared.get("dsa_prefill_backend")
    if shipped is None:  # the user named one
        return declared
    config = _hf_config(view)
    tuned = dsa_tuned.default_prefill_backend(view, config, shipped)
    return {**declared, "dsa_prefill_backend": tuned}


def set_backend(
    original: Callable[..., Any], args: Any, *words: Any, **named: Any
) -> Any:
    """Around the default backends (0.5.12 to 0.5.14)."""
    prefix = "dsa" if "dsa" in original.__name__ else "nsa"
    name = f"{prefix}_prefill_backend"
    named_by_user = getattr(args, name) is not None
    result = original(args, *words, **named)
    is_fp8 = args.kv_cache_dtype == "fp8_e4m3"
    if not named_by_user and not args.enable_hisparse and is_fp8:
        config, shipped = _hf_config(args), getattr(args, name)
        setattr(args, name, dsa_tuned.default_prefill_backend(args, config, shipped))
    return result


def set_threshold(
    original: Callable[..., Any], args: Any, *words: Any, **named: Any
) -> Any:
    """Around the resolution that sets the variable where the user did not."""
    envs = importlib.import_module("sglang.srt.environ").envs
    variable = next(
        found
        for name in _THRESHOLDS
        if (found := getattr(envs, name, None)) is not None
    )
    set_by_user = variable.is_set()
    result = original(args, *words, **named)
    if not set_by_user and variable.is_set():
        config, shipped = _hf_config(args), variable.get()
        if shipped == getattr(config, "index_topk", None):
            variable.set(dsa_tuned.dense_threshold(args, config, shipped))
    return result


def fill_hisparse(settings: Any, args: Any = None) -> Any:
    """After HiSparse's settings were parsed: the table's values where the user's JSON has none."""
    if args is None:
        context = importlib.import_module("sglang.srt.runtime_context")
        args, given = context.get_server_args(), context.get_memory().hisparse_config
    else:
        given = args.hisparse_config
    user = json.loads(given) if given else {}
    accepts = tuple(field.name for field in dataclasses.fields(settings))
    tuned = dsa_tuned.hisparse_config(user, args, _hf_config(args), accepts=accepts)
    fresh = {name: value for name, value in tuned.items() if name not in user}
    return dataclasses.replace(settings, **fresh)


def _hf_config(args: Any) -> Any:
    if hasattr(args, "get_model_config"):
        return args.get_model_config().hf_config
    overrides = importlib.import_module("sglang.srt.arg_groups.overrides")
    return overrides.model_config_of(args).hf_config


Hook = tuple[str, Callable[..., Any], str]
"""Target, function, and when it is called."""
_ATTENTION = "sglang.srt.layers.attention"
_ARGS = "sglang.srt.server_args.ServerArgs"
_GROUPS = "sglang.srt.arg_groups"
_HOOKS: dict[str, list[list[Hook]]] = {
    "flashmla_auto": [
        [
            (
                f"{_ATTENTION}.dsa_backend.DeepseekSparseAttnBackend.set_dsa_prefill_impl",
                choose_kernel,
                "AFTER",
            ),
            (
                f"{_ATTENTION}.nsa_backend.NativeSparseAttnBackend.set_nsa_prefill_impl",
                choose_kernel,
                "AFTER",
            ),
        ],
        [
            (
                f"{_GROUPS}.overrides._dsa_split_backend_resolution",
                declare_backend,
                "AFTER",
            ),
            (f"{_ARGS}._set_default_dsa_backends", set_backend, "AROUND"),
            (f"{_ARGS}._set_default_nsa_backends", set_backend, "AROUND"),
        ],
    ],
    "mha_threshold": [
        [
            (
                f"{_GROUPS}.model_hook.handle_model_specific_adjustments",
                set_threshold,
                "AROUND",
            ),
            (f"{_ARGS}._handle_model_specific_adjustments", set_threshold, "AROUND"),
        ],
    ],
    "hisparse": [
        [
            (
                "sglang.srt.mem_cache.sparsity.factory._parse_sparse_config",
                fill_hisparse,
                "AFTER",
            )
        ],
    ],
}
"""Kind of table → for each of its places the targets that versions have had; the first that exists is taken."""

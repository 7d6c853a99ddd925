"""Tuned defaults of DeepSeek Sparse Attention, one JSON file per kind, heads per rank, index_topk, GPU and KV dtype.

Tables lie in the folder that SGLANG_DSA_CONFIG_DIR names, else in `dsa_tuned_configs` beside this file. Where none
matches, every function gives back what the runtime would have done. Flags and environment variables of the user win.
"""

from __future__ import annotations

import bisect
import functools
import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "SGLANG_DSA_CONFIG_DIR"
SHIPPED = Path(__file__).with_name("dsa_tuned_configs")
_KERNELS = ("flashmla_sparse", "flashmla_kv")
_said: set[str] = set()


def prefill_impl(backend: Any, forward_batch: Any, *, keep: bool) -> str | None:
    """Kernel for a prefill batch under `flashmla_auto`, None where the runtime's own rule holds.

    `keep` says that it holds in any case: under context parallelism, and while a graph is captured or replayed. Counts what the runtime's rule counts: new tokens and tokens of the KV cache (prefix and new), summed over the batch.
    """
    if forward_batch is None or keep or not _stores_fp8(backend):
        return None
    if forward_batch.forward_mode.name != "EXTEND":
        return None
    found = _table(
        "flashmla_auto", backend.num_q_heads, _index_topk(backend), "fp8_e4m3"
    )
    if found is None:
        return None
    new_tokens, kv_tokens = forward_batch.extend_num_tokens, forward_batch.seq_lens_sum
    if new_tokens is None or kv_tokens is None:
        return None
    impl = _kernel(found["rule"], new_tokens, kv_tokens)
    _say_once(
        f"chose {impl}, first for {new_tokens} new tokens and {kv_tokens} in the KV cache",
        found,
        impl,
    )
    return impl


def default_prefill_backend(args: Any, hf_config: Any, shipped: str) -> str:
    """`flashmla_auto` where a table can choose and the runtime would take flashmla_kv, else what is shipped."""
    if shipped != "flashmla_kv":
        return shipped
    found = _table_of_args("flashmla_auto", args, hf_config, "fp8_e4m3")
    if found is None:
        return shipped
    _say_once(
        f"makes flashmla_auto the default prefill backend instead of {shipped}", found
    )
    return "flashmla_auto"


def dense_threshold(args: Any, hf_config: Any, shipped: int) -> int:
    """Longest sequence that is prefilled with dense attention, in tokens, where the user set nothing."""
    found = _table_of_args("mha_threshold", args, hf_config, _kv_dtype(args))
    return shipped if found is None else _threshold(found, shipped)


def dense_threshold_of_backend(backend: Any, shipped: int) -> int:
    """The same for runtimes without a variable for it, asked per batch."""
    dtype = "fp8_e4m3" if _stores_fp8(backend) else "bfloat16"
    found = _table("mha_threshold", backend.num_q_heads, _index_topk(backend), dtype)
    return shipped if found is None else _threshold(found, shipped)


def hisparse_config(
    given: dict[str, Any], args: Any, hf_config: Any, *, accepts: tuple[str, ...]
) -> dict[str, Any]:
    """HiSparse settings with the table's values where the user gave none. `accepts`: keys that this version reads."""
    found = _table_of_args("hisparse", args, hf_config, _kv_dtype(args))
    if found is None:
        return given
    tuned = {
        name: found["rule"][name]
        for name in accepts
        if found["rule"].get(name) is not None
    }
    top_k = given.get("top_k")
    if isinstance(top_k, int) and tuned.get("device_buffer_size", 0) < top_k:
        return given
    _say_once(f"sets HiSparse {tuned}, under what --hisparse-config gives", found)
    return {**tuned, **given}


def _kernel(rule: dict[str, Any], new_tokens: int, kv_tokens: int) -> str:
    if rule["form"] == "constant":
        return str(rule["kernel"])
    if rule["form"] == "ratio":
        few = new_tokens < (rule.get("from_new_tokens") or 1)
        many_cached = kv_tokens >= new_tokens * rule["kv_per_new_token"]
        return _KERNELS[1] if few or many_cached else _KERNELS[0]
    row = max(0, bisect.bisect_right(rule["new_tokens"], new_tokens) - 1)
    column = max(0, bisect.bisect_right(rule["kv_tokens"], kv_tokens) - 1)
    return str(rule["kernels"][row][column])


def _threshold(found: dict[str, Any], shipped: int) -> int:
    value = int(found["rule"]["max_tokens"])
    _say_once(
        f"sets the dense attention threshold to {value} instead of {shipped} tokens",
        found,
    )
    return value


def _stores_fp8(backend: Any) -> bool:
    return bool(
        getattr(
            backend,
            "dsa_kv_cache_store_fp8",
            getattr(backend, "nsa_kv_cache_store_fp8", False),
        )
    )


def _index_topk(backend: Any) -> int:
    return int(
        getattr(backend, "dsa_index_topk", getattr(backend, "nsa_index_topk", 0))
    )


def _kv_dtype(args: Any) -> str:
    """As the runtime resolves `auto` for these models."""
    given = args.kv_cache_dtype
    if given == "auto":
        import torch

        if not torch.cuda.is_available():  # an NPU or XPU, for which no table is
            return "bfloat16"
        return "fp8_e4m3" if torch.cuda.get_device_capability()[0] >= 10 else "bfloat16"
    return "bfloat16" if given == "bf16" else str(given)


def _table_of_args(
    kind: str, args: Any, hf_config: Any, dtype: str
) -> dict[str, Any] | None:
    heads, topk = (
        getattr(hf_config, "num_attention_heads", None),
        getattr(hf_config, "index_topk", None),
    )
    ranks = _attention_ranks(args)
    if heads is None or topk is None or ranks is None or heads % ranks:
        return None
    return _table(kind, heads // ranks, topk, dtype)


def _attention_ranks(args: Any) -> int | None:
    """Tensor-parallel width of attention, None under context parallelism: nobody tunes for that."""
    switches = (
        "enable_prefill_cp",
        "enable_dsa_prefill_context_parallel",
        "enable_nsa_prefill_context_parallel",
    )
    if (
        any(getattr(args, name, False) for name in switches)
        or (getattr(args, "attn_cp_size", 1) or 1) > 1
    ):
        return None
    split = args.dp_size if getattr(args, "enable_dp_attention", False) else 1
    split = max(split or 1, getattr(args, "attn_dp_size", 1) or 1)
    return None if args.tp_size % split else args.tp_size // split


def _table(kind: str, heads: int, topk: int, dtype: str) -> dict[str, Any] | None:
    device = _device_name()
    if device is None:
        return None
    return _load(
        f"{kind},H={heads},topk={topk},device_name={device},kv_dtype={dtype}.json"
    )


@functools.cache
def _device_name() -> str | None:
    import torch

    return (
        torch.cuda.get_device_name(0).replace(" ", "_")
        if torch.cuda.is_available()
        else None
    )


@functools.cache
def _load(name: str) -> dict[str, Any] | None:
    given = os.environ.get(FOLDER_VARIABLE)
    if given and not os.path.isdir(given):  # Path's raises
        logger.error("%s=%s: no such folder", FOLDER_VARIABLE, given)
    for folder in ([Path(given)] if given else []) + [SHIPPED]:
        try:
            return _read(folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except _UNUSABLE:
            logger.exception("DSA tuned table %s is not used", folder / name)
            return None
    return None


# Whatever somebody wrote into a file, no server ends of it.
_UNUSABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)


def _read(file: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(file.read_bytes())
    version, runtime, kind = (
        table.get("schema_version", 1),
        table["runtime"],
        table["kind"],
    )
    if version != 1 or runtime != "sglang" or not file.name.startswith(f"{kind},"):
        raise ValueError(f"is for {runtime}, {kind}, schema {version}")
    _CHECKS[kind](table["rule"])
    evidence = table.get("evidence", {})
    versions = evidence.get("versions", {})
    measured = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    basis = evidence.get("label", "unlabelled") + (measured and f" with {measured}")
    return {"rule": table["rule"], "file": str(file), "basis": basis}


def _check_choice(rule: dict[str, Any]) -> None:
    cells: list[list[str]] = []
    if rule["form"] == "constant":
        cells = [[rule["kernel"]]]
    elif rule["form"] == "ratio":
        _require_counts(rule.get("from_new_tokens") or 1)
        if not 0 < rule["kv_per_new_token"] < math.inf:
            raise ValueError("kv_per_new_token is no positive number")
    else:
        rows, columns, cells = rule["new_tokens"], rule["kv_tokens"], rule["kernels"]
        _require_counts(*rows, *columns)
        if sorted(set(rows)) != rows or sorted(set(columns)) != columns:
            raise ValueError("edges do not ascend")
        if (
            not rows
            or not columns
            or [len(row) for row in cells] != [len(columns)] * len(rows)
        ):
            raise ValueError("kernels are not a row for each edge")
    if any(kernel not in _KERNELS for row in cells for kernel in row):
        raise ValueError("names an unknown kernel")


def _require_counts(*values: Any) -> None:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values}: no numbers of tokens")


_CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "flashmla_auto": _check_choice,
    "mha_threshold": lambda rule: _require_counts(rule["max_tokens"]),
    "hisparse": lambda rule: _require_counts(
        rule["device_buffer_size"],
        rule["host_to_device_ratio"],
        rule.get("swap_in_block_size") or 0,
    ),
}


def _say_once(what: str, found: dict[str, Any], key: str = "") -> None:
    if (said := found["file"] + key) not in _said:
        _said.add(said)
        logger.info("DSA tuned table %s %s (%s).", found["file"], what, found["basis"])

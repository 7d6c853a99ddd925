"""Checks that the runtime makes after its arguments are resolved: while it loads, or in the first forward pass.

They stand in modules that need a GPU to run, so the single function or statement is taken out of the wheel's source and
executed as it stands, with the names that it reads. Nothing of it is copied.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

DTYPES = {"bfloat16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}


@cache
def _parsed(file: Path) -> ast.Module:
    """Parsed once for all cases: it takes longer than all the checks together. Nobody changes the tree."""
    return ast.parse(file.read_text())


class Source:
    """One file of the wheel. Missing files have nothing in them."""

    def __init__(self, *candidates: Path) -> None:
        self.file = next((file for file in candidates if file.is_file()), None)
        self.tree = _parsed(self.file) if self.file else ast.Module([], [])

    def execute(self, nodes: list[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
        """Run statements as if they stood in their file (tracebacks name it)."""
        exec(compile(ast.Module(nodes, []), str(self.file), "exec"), names)
        return names

    def function(self, name: str, names: dict[str, Any]) -> Callable[..., Any] | None:
        """The function with that name, in these globals."""
        found = next((n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and n.name == name), None)
        if found is None:
            return None
        plain = copy.deepcopy(found)
        plain.decorator_list, plain.returns = [], None
        arguments = plain.args
        for argument in (*arguments.args, *arguments.kwonlyargs):
            argument.annotation = None
        return self.execute([plain], names)[name]

    def body(self, name: str) -> ast.FunctionDef | None:
        """The function's own statements, not run."""
        return next((n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and n.name == name), None)

    def asserts(self, text: str) -> list[ast.stmt]:
        """Assert statements whose source has this text."""
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.Assert) and text in ast.unparse(n)]

    def ifs(self, text: str, within: ast.AST | None = None) -> list[ast.stmt]:
        """Ifs that raise directly, with this text in their source."""
        nodes = [n for n in ast.walk(within or self.tree) if isinstance(n, ast.If) and not n.orelse]
        return [n for n in nodes if isinstance(n.body[-1], ast.Raise) and text in ast.unparse(n)]


def run(root: Path, args: Any, model: Any, capability: tuple[int, int], case: str) -> None:
    """Every later check, in the order in which a boot reaches it. Raises what the runtime would."""
    srt = root / "sglang" / "srt"
    hip = torch.version.hip is not None
    kernels = _kernels(args)
    _expert_ranks(srt, args, model)
    _stages(srt, args, model)
    _hisparse(srt, args)
    _index_width(srt, model)
    if not (kernels["dsa"] and kernels["prefill"] and kernels["kv"] in DTYPES):
        return
    backend = Source(srt / "layers/attention/dsa_backend.py", srt / "layers/attention/nsa_backend.py")
    if backend.body("forward_decode") is None:
        backend = Source(srt / "layers/attention/nsa_backend.py")
    _constructor(root, backend, args, model, capability, hip)
    _memory(srt, args, model, hip, case)
    if case == "PD06":
        _dtypes_of_roles(srt, args)
    if case == "SL02":
        _row_width(srt, args, model, hip)
    if case == "SL08":
        _buffer_below_topk(srt, args, model)
    _hisparse_speculation(srt, args, model, case)
    if not hip:
        _forward(srt, backend, args, model, capability)
    _dispatch(backend, "forward_extend", kernels["prefill"])
    _dispatch(backend, "forward_decode", kernels["decode"])
    if not hip:
        _topk(root, backend, args, model)


def _kernels(args: Any) -> dict[str, Any]:
    prefix = "dsa" if hasattr(args, "dsa_prefill_backend") else "nsa"
    return {
        "prefill": getattr(args, f"{prefix}_prefill_backend"),
        "decode": getattr(args, f"{prefix}_decode_backend"),
        "kv": args.kv_cache_dtype,
        "dsa": args.attention_backend in {"dsa", "nsa"},
    }


def _raw(kernels: dict[str, Any], hip: bool) -> bool:
    pair = (kernels["prefill"], kernels["decode"])
    return "trtllm" in pair or hip or pair == ("tilelang", "tilelang")


def _heads(args: Any, model: Any) -> int:
    groups = getattr(args, "attn_dp_size", 1)
    if getattr(args, "enable_dp_attention", False):
        groups = args.dp_size
    return model.num_attention_heads // max(args.tp_size // (groups * args.attn_cp_size), 1)


def _stages(srt: Path, args: Any, model: Any) -> None:
    source = Source(srt / "distributed/utils.py")
    indices = source.function("get_pp_indices", {"os": os})
    if indices is not None:
        indices(model.num_hidden_layers, 0, args.pp_size)


def _expert_ranks(srt: Path, args: Any, model: Any) -> None:
    """Asked of weights in blocks alone."""
    if "weight_block_size" not in (getattr(model, "quantization_config", None) or {}):
        return
    source = Source(
        srt / "model_executor/model_runner_components/moe_ep_setup.py", srt / "model_executor/model_runner.py"
    )
    sizes = SimpleNamespace(tp_size=args.tp_size, moe_ep_size=args.ep_size)
    source.execute(source.ifs("must be divisible by ep_size"), {"self": sizes, **vars(sizes)})


def _hisparse(srt: Path, args: Any) -> Any:
    if not getattr(args, "enable_hisparse", False):
        return None
    names = {"json": json, "SparseConfig": SimpleNamespace, "get_memory": lambda: args}
    parse = Source(srt / "mem_cache/sparsity/factory.py").function("_parse_sparse_config", names)
    assert parse is not None
    return parse(args) if parse.__code__.co_argcount else parse()


def _constructor(root: Path, backend: Source, args: Any, model: Any, capability: tuple[int, int], hip: bool) -> None:
    """What the attention backend checks when it is made."""
    kernels, dtype = _kernels(args), DTYPES[args.kv_cache_dtype]
    packed = dtype == torch.float8_e4m3fn and not _raw(kernels, hip)
    names = {"torch": torch, "_is_hip": hip, "_TRITON_SPARSE_MLA_MAX_HEADS": 32}
    q8 = backend.function("_validate_flashmla_sparse_q8_backend", dict(names))
    if q8 is not None:
        q8(
            prefill_impl=kernels["prefill"],
            decode_impl=kernels["decode"],
            kv_cache_dtype=dtype,
            kv_cache_store_fp8=packed,
            qk_rope_head_dim=model.qk_rope_head_dim,
            device_sm_major=capability[0],
            hisparse_enabled=getattr(args, "enable_hisparse", False),
            mixed_chunk_enabled=args.enable_mixed_chunk,
        )
    else:
        this = SimpleNamespace(
            dsa_prefill_impl=kernels["prefill"],
            dsa_decode_impl=kernels["decode"],
            kv_cache_dtype=dtype,
            device_sm_major=capability[0],
        )
        for guard in _outer_ifs(backend.tree, "flashmla_sparse_q8"):
            backend.execute([guard], {**names, "self": this})
    if kernels["prefill"] == "triton_sparse_mla":
        triton = backend.function("_validate_triton_sparse_mla_backend", dict(names))
        assert triton is not None
        triton(
            device_sm_major=capability[0],
            num_q_heads=_heads(args, model),
            union=args.dsa_triton_union,
            index_kpool=1,
        )
    sm120 = Source(root / "sglang/kernels/ops/attention/flash_mla_sm120.py")
    archs = [
        n for n in sm120.tree.body if isinstance(n, ast.Assign) and "_GLM_DSA_MODEL_ARCHS" in ast.unparse(n.targets)
    ]
    check = sm120.function(
        "_validate_flashinfer_sparse_mla_backend", sm120.execute(archs, dict(names)) if archs else names
    )
    if check is not None:
        check(
            model_arch=model.architectures[0],
            device_sm_major=capability[0],
            kv_cache_dtype=dtype,
            prefill_impl=kernels["prefill"],
            decode_impl=kernels["decode"],
        )


def _outer_ifs(tree: ast.AST, kernel: str) -> Iterator[ast.stmt]:
    """Ifs of the constructor that look at the kernel and lead to a raise."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            for node in function.body:
                raises = any(isinstance(n, ast.Raise) for n in ast.walk(node))
                if isinstance(node, ast.If) and kernel in ast.unparse(node.test) and raises:
                    yield node


def _memory(srt: Path, args: Any, model: Any, hip: bool, case: str) -> None:
    """The KV pool."""
    kernels = _kernels(args)
    places = (
        *(srt / "mem_cache/kv_cache_configurator.py", srt / "model_executor/model_runner_kv_cache_mixin.py"),
        srt / "model_executor/pool_configurator.py",
    )
    for place in places:
        source = Source(place)
        if kernels["kv"] == "fp8_e4m3" and not _raw(kernels, hip):
            for node in source.asserts("quant_block_size == 0"):
                source.execute([node], {"kv_lora_rank": model.kv_lora_rank, "quant_block_size": 128})
        if case == "MM01":
            this = SimpleNamespace(max_total_num_tokens=0, mem_fraction_static=None, server_args=args)
            for node in ast.walk(source.tree):
                if isinstance(node, ast.If) and "max_total_num_tokens <= 0" in ast.unparse(node.test):
                    source.execute([node], {"self": this})


def _index_width(srt: Path, model: Any) -> None:
    """The indexer's pool, which a DSA model has on every attention backend."""
    for place in (srt / "mem_cache/memory_pool.py", *srt.glob("layers/attention/?sa/index_buf_accessor.py")):
        source = Source(place)
        for node in source.asserts("index_head_dim == 128"):
            source.execute([node], {"index_head_dim": model.index_head_dim, "self": SimpleNamespace()})


def _dtypes_of_roles(srt: Path, args: Any) -> None:
    """What a decode server checks when it meets a prefill server whose cache is bfloat16."""
    source = Source(srt / "disaggregation/common/conn.py")
    this = SimpleNamespace(server_args=args, kv_cache_dtype_str=args.kv_cache_dtype)
    info = SimpleNamespace(kv_cache_dtype="bfloat16")
    source.execute(source.ifs("KV cache dtype mismatch"), {"self": this, "info": info})


def _row_width(srt: Path, args: Any, model: Any, hip: bool) -> None:
    """Bytes of a KV row: raw with trtllm on either side, packed without it. Raises where they are not the rule's."""
    asked = (*_kernels(args).values(),)[:2]
    widths = [_width(srt, args, model, hip, pair) for pair in (asked, ("flashmla_kv", "flashmla_kv"))]
    if widths != [576, 656]:
        raise ValueError(f"rows of {widths} bytes, not of 576 and 656")


def _width(srt: Path, args: Any, model: Any, hip: bool, pair: tuple[str, str]) -> int:
    settings = SimpleNamespace(
        **{f"{p}_{w}_backend": k for p in ("dsa", "nsa") for w, k in zip(("prefill", "decode"), pair, strict=True)},
        disaggregation_mode=args.disaggregation_mode,
    )
    pool = SimpleNamespace(quant_block_size=128, rope_storage_dtype=torch.bfloat16)
    names = {
        "torch": torch,
        "_is_hip": hip,
        **dict.fromkeys(("is_deepseek_dsa", "is_deepseek_nsa"), lambda _: True),
        **dict.fromkeys(("DSATokenToKVPool", "NSATokenToKVPool"), pool),
        "get_disagg": lambda: settings,
        "get_exec": lambda: SimpleNamespace(kernel=settings),
        "get_server_args": lambda: settings,
    }
    config = SimpleNamespace(hf_config=model, kv_lora_rank=model.kv_lora_rank, qk_rope_head_dim=model.qk_rope_head_dim)
    given = {"model_config": config, "kv_cache_dtype": DTYPES[args.kv_cache_dtype], "server_args": settings}
    for place in ("mem_cache/kv_cache_configurator.py", "model_executor/model_runner_kv_cache_mixin.py"):
        width = Source(srt / place).function("calculate_mla_kv_cache_dim", names)
        if width is not None:
            wanted = inspect.signature(width).parameters
            if "self" in wanted:
                return int(width(SimpleNamespace(**given)))
            return int(width(**{name: value for name, value in given.items() if name in wanted}))
    raise ValueError("no calculate_mla_kv_cache_dim")


def _buffer_below_topk(srt: Path, args: Any, model: Any) -> None:
    """The entries that are swapped in: the model's, whatever the buffer was checked against."""
    config = _hisparse(srt, args)
    source = Source(srt / "model_executor/model_runner.py")
    taken = [
        n for n in ast.walk(source.tree) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "hisparse_top_k"
    ]
    this = SimpleNamespace(model_config=SimpleNamespace(hf_text_config=model))
    names = source.execute(taken, {"self": this, "hisparse_cfg": config})
    if not config.top_k <= config.device_buffer_size < names["hisparse_top_k"]:
        raise ValueError(f"a buffer of {config.device_buffer_size} for {names['hisparse_top_k']} entries")


def _topk(root: Path, backend: Source, args: Any, model: Any) -> None:
    """The indexer's top-k of a prefill batch, down to the kernel package's own functions where they lie beside the wheel.

    `FOLDER/kernels/VERSION/sgl_kernel/top_k.py`, out of the kernel package that the version pins; it needs torch alone.
    """
    package = Source(root.parent / "kernels" / root.name / "sgl_kernel" / "top_k.py")
    unfused = "0" in {os.environ.get("SGLANG_DSA_FUSE_TOPK"), os.environ.get("SGLANG_NSA_FUSE_TOPK")}
    if package.file is None or unfused or getattr(args, "dsa_topk_backend", "sgl-kernel") != "sgl-kernel":
        return
    kernels, one = _kernels(args), torch.zeros(1, dtype=torch.int32)
    methods = SimpleNamespace(PAGED="paged", RAGGED="ragged")
    names: dict[str, Any] = {
        "torch": torch,
        "_is_hip": False,
        "TopkTransformMethod": methods,
        "ForwardMode": SimpleNamespace(EXTEND=_EXTEND),
        "envs": _On(),
        **dict.fromkeys(("_topk_transform_v2_paged", "_topk_transform_v2_ragged"), lambda *_, **__: None),
    }
    this = SimpleNamespace(
        **{f"{p}_prefill_impl": kernels["prefill"] for p in ("dsa", "nsa")},
        **{f"{p}_kv_cache_store_fp8": kernels["kv"] == "fp8_e4m3" and not _raw(kernels, False) for p in ("dsa", "nsa")},
    )
    choose = backend.function("get_topk_transform_method", names)
    assert choose is not None
    method = choose(this, *([_EXTEND] if "forward_mode" in inspect.signature(choose).parameters else []))
    page = torch.zeros(1, 1, dtype=torch.int32)
    metadata = SimpleNamespace(
        cu_seqlens_q=one, topk_indices_offset=one, page_table_1=page, real_page_table=page, token_to_batch_idx=one
    )
    logits, starts = torch.zeros(1, 8), one
    kernel = SimpleNamespace(**dict.fromkeys(("fast_topk", *_TOPK_FUNCTIONS[1:]), lambda *_: None))
    inside = {"torch": SimpleNamespace(int32=torch.int32, ops=SimpleNamespace(sgl_kernel=kernel))}
    parts = {name: package.function(name, dict(inside)) for name in _TOPK_FUNCTIONS}
    sys.modules["sgl_kernel"] = types.ModuleType("sgl_kernel")
    vars(sys.modules["sgl_kernel"]).update(parts)
    late = Source(backend.file.parent / "dsa" / "dsa_topk_backend.py") if backend.file else Source()
    transform = late.function("topk_transform", names)
    if transform is not None:
        this = SimpleNamespace(is_sgl_kernel=lambda: True, should_use_topk_v2=lambda: True)
        call = {"topk_indices_offset": one, "row_starts": starts, "cu_seqlens_q_topk": one}
        transform(this, logits, one, model.index_topk, method, metadata, **call)
        return
    transform = backend.function("topk_transform", names)
    assert transform is not None
    this = SimpleNamespace(
        attn_metadata=metadata,
        topk_transform_method=method,
        get_seqlens_expanded=lambda: one,
        force_unfused_topk=False,
    )
    transform(this, logits, model.index_topk, ks=starts)


_TOPK_FUNCTIONS = ("fast_topk_v2", "fast_topk_transform_fused", "fast_topk_transform_ragged_fused")


class _Extend:
    """A batch of prefill: it is nothing else."""

    def __getattr__(self, name: str) -> Any:
        return lambda: name == "is_extend"


_EXTEND = _Extend()


class _On:
    """Variables of the environment that are all set."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(get=lambda: True)


def _hisparse_speculation(srt: Path, args: Any, model: Any, case: str) -> None:
    config = _hisparse(srt, args)
    source = Source(srt / "managers/hisparse_coordinator.py")
    if config is None or args.speculative_algorithm is None or not source.ifs("HiSparse spec swap"):
        return
    groups = max(getattr(args, "attn_dp_size", 1), 1)
    names = {
        "num_draft_tokens": args.speculative_num_draft_tokens,
        "workspace_capacity": args.speculative_num_draft_tokens * model.index_topk,
        "coordinator": SimpleNamespace(top_k=model.index_topk, device_buffer_size=config.device_buffer_size),
        "max_num_req_slots": args.max_running_requests // groups,
    }
    for node in (
        *source.ifs("HiSparse spec swap requires"),
        *source.ifs("at most 8192"),
        *source.ifs("request capacity"),
    ):
        source.execute([node], dict(names))
    if case == "HS18":
        decode = Source(srt / "disaggregation/decode.py")
        backend = SimpleNamespace(MOONCAKE="mooncake")
        for node in decode.ifs("requires the Mooncake backend"):
            this = SimpleNamespace(transfer_backend=args.disaggregation_transfer_backend)
            decode.execute([node], {"self": this, "TransferBackend": backend})


def _forward(srt: Path, backend: Source, args: Any, model: Any, capability: tuple[int, int]) -> None:
    """The first batch on NVIDIA."""
    kernels, heads = _kernels(args), _heads(args, model)
    if "fa3" in (kernels["prefill"], kernels["decode"]):
        _fa3(srt.parent, capability)
    # On Blackwell it turns to flashmla_sparse for some batches of fp8 too.
    auto = kernels["prefill"] == "flashmla_auto" and (kernels["kv"] == "bfloat16" or capability[0] >= 10)
    function = backend.body("_forward_flashmla_sparse")
    if function is not None and ("flashmla_sparse" in (kernels["prefill"], kernels["decode"]) or auto):
        this = SimpleNamespace(device_sm_major=capability[0], device_capability=capability)
        names = {"self": this, "num_heads": heads, "torch": torch}
        wanted = {"required_padding", "need_padding", "device_sm_major"}
        nodes = [n for n in function.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) in wanted]
        backend.execute([*nodes], names)
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and "cannot be padded" in ast.unparse(node) and names["need_padding"]:
                backend.execute([node], names)
    for place in (
        *srt.glob("layers/attention/?sa/transform_index.py"),
        srt.parent / "kernels/ops/attention/dsa/transform_index.py",
    ):
        source = Source(place)
        function = source.body("transform_index_page_table_decode_fast")
        nodes = [n for n in ast.walk(function) if isinstance(n, ast.Assert)] if function else []
        topk = SimpleNamespace(shape=(1, model.index_topk))
        unfused = "0" in {os.environ.get("SGLANG_DSA_FUSE_TOPK"), os.environ.get("SGLANG_NSA_FUSE_TOPK")}
        for node in nodes:
            if "2048" in ast.unparse(node) and unfused:
                source.execute([node], {"topk_indices": topk})


def _fa3(package: Path, capability: tuple[int, int]) -> None:
    """The guard before the kernel; before 0.5.12 it stands in the kernel package, which is not run."""
    source = Source(
        package / "jit_kernel/flash_attention_v3.py", package / "kernels/ops/attention/flash_attention_v3.py"
    )
    names = {
        "torch": SimpleNamespace(version=SimpleNamespace(cuda="13.0")),
        "get_device_capability": lambda: capability,
        "is_musa": lambda: False,
    }
    supported = source.function("_is_fa3_supported", names)
    kernel = source.body("flash_attn_with_kvcache")
    for node in source.ifs("_is_fa3_supported", kernel) if supported and kernel else ():
        source.execute([node], {"_is_fa3_supported": supported})


def _dispatch(backend: Source, phase: str, kernel: str) -> None:
    """Walk the phase's if-elif chain over kernels; run its last branch where none is the kernel's."""
    function = backend.body(phase)
    if function is None or (kernel == "flashmla_auto" and phase == "forward_extend"):
        return
    this = SimpleNamespace(
        **{f"{p}_{w}_impl": kernel for p in ("dsa", "nsa") for w in ("prefill", "decode")}, use_mha=False
    )
    names: dict[str, Any] = {"self": this, "dsa_impl": kernel, "nsa_impl": kernel}
    for chain in ast.walk(function):
        if isinstance(chain, ast.If) and "_impl" in ast.unparse(chain.test):
            try:
                end = _end_of(chain, names)
            except (NameError, AttributeError):
                continue  # it asks for more than the kernel: not the chain that is looked for
            if end is None:
                return
            if isinstance(end, ast.Raise | ast.Assert):
                backend.execute([end], names)


def _end_of(chain: ast.If, names: dict[str, Any]) -> ast.stmt | None:
    """What is left when no branch of an if-elif chain is taken; None where one is."""
    node: ast.stmt = chain
    while isinstance(node, ast.If):
        if eval(compile(ast.Expression(node.test), "chain", "eval"), dict(names)):
            return None
        if len(node.orelse) != 1:
            return node
        node = node.orelse[0]
    return node

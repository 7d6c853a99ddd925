"""Runs the functions that a patch touches, out of an unpacked wheel, without the wheel's dependencies.

    python -I -B patched_child.py FOLDER < questions.json > answers.jsonl

FOLDER has `sglang/`. Whole modules cannot be imported without torch and CUDA, so each function is taken out of its
module by its syntax tree and run with stand-ins for the names around it; the patch's own module is imported as it is.
Each question in a fork of its own: {"device": "NVIDIA H200", "major": 9, "heads": 16, "batches": [[new, kv], …], "args": {…}, "threshold": 1}.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import importlib.machinery
import inspect
import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Optional

ROOT = Path(sys.argv[1]).resolve() / "sglang"


LOADER, FILE_OF_LOADER = "sglang.srt.layers.attention.dsa_tuned", "srt/layers/attention/dsa_tuned.py"
FACTORY = "srt/mem_cache/sparsity/factory.py"
FILES = (
    *("srt/layers/attention/dsa_backend.py", "srt/layers/attention/nsa_backend.py", "srt/server_args.py"),
    *("srt/arg_groups/overrides.py", "srt/arg_groups/model_hook.py", FACTORY),
)


class ForwardMode(enum.IntEnum):
    EXTEND = 1
    DECODE = 2

    def is_extend_without_speculative(self):
        return self is ForwardMode.EXTEND


class Length(int):
    def item(self):
        return int(self)


class Lengths(list):
    def max(self):
        return Length(max(self))


def put(name, **attributes):
    """A module of that name with these attributes, and packages above it that lead to the wheel's own files."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        above = ".".join(parts[:depth])
        package = types.ModuleType(above)
        package.__path__ = [str(ROOT.joinpath(*parts[1:depth]))] if parts[0] == "sglang" else []
        sys.modules.setdefault(above, package)
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


@functools.cache
def parsed(file):
    """Once, before the forks."""
    return ast.parse((ROOT / file).read_bytes())


def take(names, files, around):
    """The function of one of these names, compiled with the names around it; None where there is none."""
    for file in files:
        if not (ROOT / file).is_file():
            continue
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
                if isinstance(node, ast.FunctionDef):
                    node.decorator_list = []
                module = ast.parse("from __future__ import annotations")
                module.body.append(node)
                exec(compile(module, file, "exec"), around)
                return around[node.name]
    return None


class Variable:
    def __init__(self, value):
        self.value = value
        self.given = value is not None

    def is_set(self):
        return self.value is not None

    def get(self):
        return 2048 if self.value is None else self.value

    def set(self, value):
        self.value = value


def variables(threshold):
    """The variables that are asked for; versions differ in the threshold's name."""
    unset = types.SimpleNamespace(get=lambda: "")
    name = "DSA" if (ROOT / "srt/layers/attention/dsa").is_dir() else "NSA"
    return types.SimpleNamespace(
        SGLANG_PLUGINS=unset,
        SGLANG_PLATFORM=unset,
        **{f"SGLANG_{name}_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": Variable(threshold)},
    )


def names_around(ask):
    graphs = ("breakable_cuda_graph", "tc_piecewise_cuda_graph", "piecewise_cuda_graph")
    outside = {f"is_in_{name}": lambda: False for name in graphs}
    config = types.SimpleNamespace(
        num_attention_heads=ask.get("model_heads", 128), index_topk=2048, architectures=["DeepseekV32ForCausalLM"]
    )
    put("sglang.srt.utils", get_device_sm=lambda: ask["major"] * 10, is_blackwell=lambda: ask["major"] >= 10)
    put("sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.context", **outside)
    put("sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph", **outside)
    put(
        "sglang.srt.configs.model_config",
        is_deepseek_dsa=lambda _: True,
        get_dsa_index_topk=lambda config: config.index_topk,
        get_nsa_index_topk=lambda config: config.index_topk,
    )
    args = types.SimpleNamespace(**ask["args"], get_model_config=lambda: types.SimpleNamespace(hf_config=config))
    put("sglang.srt.compilation.piecewise_context_manager", **outside)
    hisparse = (f"apply_hisparse_{name}_backend_defaults" for name in ("nsa", "dsa"))
    put("sglang.srt.arg_groups.hisparse_hook", **dict.fromkeys(hisparse, lambda *_, **__: False))
    put("sglang.srt.runtime_context", get_server_args=lambda: args, get_memory=lambda: args)
    platform = types.SimpleNamespace(is_npu=False, is_xpu=False, is_hip=False)
    return outside, {
        "torch": sys.modules["torch"],
        "json": json,
        "logger": logging.getLogger("wheel"),
        "ForwardMode": ForwardMode,
        "envs": variables(ask.get("threshold")),
        "hf_config": config,
        "self": args,
        "server_args": args,
        "get_memory": lambda: args,
        "get_platform": lambda: platform,
        "model_config_of": lambda _: args.get_model_config(),
        "_check_dsa_backend_constraints": lambda *_, **__: None,
        "_DEEPSEEK_FAMILY_ARCHS": config.architectures,
        "_IS_GFX95": False,
        **({"dsa_tuned": importlib.import_module(LOADER)} if (ROOT / FILE_OF_LOADER).is_file() else {}),
        **dict.fromkeys(("is_npu", "is_xpu", "is_hip"), lambda: False),
        **dict.fromkeys(("is_nsa_enable_prefill_cp", "is_dsa_enable_prefill_cp"), lambda: ask.get("cp", False)),
    }


def modules_of(outside, around):
    """The version's own functions in modules of their names, where hooks of a plugin find them."""
    put("sglang.srt.environ", envs=around["envs"])
    checks = {name: around[name] for name in ("is_nsa_enable_prefill_cp", "is_dsa_enable_prefill_cp")}
    for name, owner in (("dsa", "DeepseekSparseAttnBackend"), ("nsa", "NativeSparseAttnBackend")):
        decide = take((f"set_{name}_prefill_impl",), [f"srt/layers/attention/{name}_backend.py"], dict(around))
        if decide is not None:
            place = f"sglang.srt.layers.attention.{name}_backend"
            backend = type(owner, (), {decide.__name__: decide, "__module__": place})
            put(place, **{owner: backend}, **checks)
            break
    arguments = {"_handle_model_specific_adjustments": lambda args: set_threshold(dict(around))}
    for setter in ("_set_default_nsa_backends", "_set_default_dsa_backends"):
        resolve = take((setter,), ["srt/server_args.py"], dict(around))
        if resolve is not None:
            arguments[setter] = resolve
    put("sglang.srt.server_args", ServerArgs=type("ServerArgs", (), arguments))
    resolve = take(("_dsa_split_backend_resolution",), ["srt/arg_groups/overrides.py"], dict(around))
    put(
        "sglang.srt.arg_groups.overrides",
        model_config_of=around["model_config_of"],
        _dsa_split_backend_resolution=resolve,
    )
    if (ROOT / "srt/arg_groups/model_hook.py").is_file():
        adjust = arguments["_handle_model_specific_adjustments"]
        put("sglang.srt.arg_groups.model_hook", handle_model_specific_adjustments=adjust)
    names = {**around, "dataclass": dataclasses.dataclass, "field": dataclasses.field, "Optional": Optional}
    names["SparseConfig"] = take(("SparseConfig",), ["srt/mem_cache/sparsity/core/sparse_coordinator.py"], names)
    parse = take(("_parse_sparse_config",), [FACTORY], names)
    put("sglang.srt.mem_cache.sparsity.factory", _parse_sparse_config=parse)
    return backend


def default_backend(args):
    """The prefill backend where the user named none (or the one that the user named)."""
    resolve = sys.modules["sglang.srt.arg_groups.overrides"]._dsa_split_backend_resolution
    if resolve is not None:
        return resolve(args).get("dsa_prefill_backend", args.dsa_prefill_backend)
    major = sys.modules["torch"].cuda.get_device_capability()[0]
    owner = sys.modules["sglang.srt.server_args"].ServerArgs
    prefix = "nsa" if hasattr(owner, "_set_default_nsa_backends") else "dsa"
    getattr(owner, f"_set_default_{prefix}_backends")(args, args.kv_cache_dtype, major)
    return getattr(args, f"{prefix}_prefill_backend")


def choices(ask, outside, owner, backend_name):
    """[kernel, dense] of each batch, and of a call without one, by the version's own function."""
    prefix = "dsa" if hasattr(owner, "set_dsa_prefill_impl") else "nsa"
    answers = []
    for counted in [*ask["batches"], None]:
        pool = types.SimpleNamespace(dtype=sys.modules["torch"].bfloat16)
        backend = owner()
        backend.__dict__.update(
            **{f"{prefix}_prefill_impl": backend_name, f"{prefix}_index_topk": 2048},
            **{f"{prefix}_kv_cache_store_fp8": ask["args"]["kv_cache_dtype"] == "fp8_e4m3"},
            **{f"_{name}": value for name, value in outside.items()},
            enable_auto_select_prefill_impl=backend_name == "flashmla_auto",
            num_q_heads=ask["heads"],
            use_mha=False,
            supports_mha_one_shot=True,
            hisparse_coordinator=None,
            token_to_kv_pool=pool,
            _force_attn_forward_mla=False,
            _get_device_sm=lambda: ask["major"] * 10,
            _is_blackwell=lambda: ask["major"] >= 10,
        )
        batch = counted and types.SimpleNamespace(
            forward_mode=ForwardMode[ask.get("mode", "EXTEND")],
            seq_lens_cpu=Lengths([counted[1]]),
            seq_lens_sum=counted[1],
            extend_num_tokens=counted[0],
            token_to_kv_pool=pool,
            get_max_chunk_capacity=lambda: 131072,
            hisparse_coordinator=None,
        )
        getattr(backend, f"set_{prefix}_prefill_impl")(batch)
        answers.append([getattr(backend, f"{prefix}_prefill_impl"), bool(backend.use_mha)])
    return answers


def set_threshold(around):
    """The statement of the arguments' resolution that sets the variable; nothing in versions without one."""

    def is_choice(node):
        return isinstance(node, ast.If) and "DENSE_ATTN_KV_LEN_THRESHOLD.is_set" in ast.unparse(node.test)

    for file in ("srt/arg_groups/model_hook.py", "srt/server_args.py"):
        if (ROOT / file).is_file():
            found = [node for node in ast.walk(parsed(file)) if is_choice(node)]
            if found:
                exec(compile(ast.Module([found[0]], []), file, "exec"), around)
                return


def threshold(around):
    """What the resolution of arguments sets the variable to; None in versions without one."""
    if "sglang.srt.arg_groups.model_hook" in sys.modules:
        sys.modules["sglang.srt.arg_groups.model_hook"].handle_model_specific_adjustments(around["self"])
    else:
        sys.modules["sglang.srt.server_args"].ServerArgs._handle_model_specific_adjustments(around["self"])
    variable = next(v for name, v in vars(around["envs"]).items() if name.endswith("THRESHOLD"))
    return variable.value


def hisparse(args):
    """HiSparse's settings as the version parses them; None in versions without them."""
    parse = sys.modules["sglang.srt.mem_cache.sparsity.factory"]._parse_sparse_config
    if not (ROOT / FACTORY).is_file() or b"host_to_device_ratio" not in (ROOT / FACTORY).read_bytes():
        return None
    settings = parse(args) if inspect.signature(parse).parameters else parse()
    names = ("top_k", "device_buffer_size", "host_to_device_ratio", "swap_in_block_size")
    return {name: getattr(settings, name) for name in names if hasattr(settings, name)}


def answer(ask):
    outside, around = names_around(ask)
    owner, args = modules_of(outside, around), around["self"]
    if "plugin" in ask:
        sys.path.insert(0, ask["plugin"])
        from sglang.srt.plugins import load_plugins

        load_plugins()
    named = args.nsa_prefill_backend
    backend = default_backend(args)
    args.nsa_prefill_backend = named
    return {
        "default": backend,
        "threshold": threshold(around),
        "choices": choices(ask, outside, owner, backend),
        "hisparse": hisparse(args),
    }


def reply(ask):
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    logging.getLogger().addHandler(Keep())
    logging.getLogger().setLevel(logging.INFO)
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        get_device_name=lambda *_: ask["device"],
        get_device_capability=lambda *_: (ask["major"], 0),
    )
    put("torch", cuda=cuda, bfloat16="bfloat16", float8_e4m3fn="fp8")
    put("sglang.srt.layers.attention.none")
    answers = answer(ask)
    wanted = ("DSA tuned table", "Failed")
    return {**answers, "log": [line for line in lines if any(word in line for word in wanted)]}


def main():
    asked = json.load(sys.stdin)
    for file in FILES:
        if (ROOT / file).is_file():
            parsed(file)
    for ask in asked:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            print(json.dumps(reply(ask)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit("a question ended with an error")


if __name__ == "__main__":
    main()

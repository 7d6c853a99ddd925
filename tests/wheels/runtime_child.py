"""Puts command lines before one unpacked wheel's own argument resolution, on a machine without a GPU.

    python -B runtime_child.py FOLDER/0.5.16 DEVICE < cases.jsonl > outcomes.jsonl

DEVICE is `PLATFORM:MAJOR.MINOR:MEMORY_GIB:NAME` (`cuda:9.0:141:NVIDIA H200`). Each line of standard input is a case,
`{"argv": […], "env": {…}}`; each is answered by a line of standard output: the error that the runtime raised or the
settings that it resolved, and the lines that it logged. Each case runs in a fork of its own.

Needs torch, torchvision, triton and the transformers release that the version asks for, roughly; every other package
that is missing is stood in for by one whose attributes exist and do nothing. Torch is told that it has the device.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import json
import logging
import os
import re
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

STOOD_IN = {
    *("sgl_kernel", "flashinfer", "deep_gemm", "deep_ep", "sgl_fa3", "torchao", "outlines", "llguidance", "torchaudio"),
    *("decord", "av", "soundfile", "librosa", "compressed_tensors", "blake3", "mooncake", "cutlass", "cuda", "pynvml"),
    *(
        "kernels",
        "quack",
        "apache_tvm_ffi",
        "tvm_ffi",
        "torch_memory_saver",
        "openai_harmony",
        "modelscope",
        "anthropic",
    ),
    *("smg_grpc_servicer", "watchfiles", "timm", "py_spy", "xgrammar", "aiter"),
}


class Absent(types.ModuleType):
    """A package whose attributes exist and do nothing."""

    __path__: list[str] = []
    __version__ = "99.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        # Classes are inherited from, so that they have to be classes.
        is_class = self.__name__.startswith("tvm_ffi") and name[0].isupper()
        value = type(name, (), {}) if is_class else MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds absent packages."""

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if top in STOOD_IN else None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def pretend(platform: str, capability: tuple[int, int], memory_gib: int, name: str) -> None:
    """Make torch and triton say that the device is there."""
    import torch

    plain = torch.library.register_fake
    torch.library.register_fake = lambda op, *a, **k: (
        (lambda function: function) if str(op).startswith(("torchvision::", "sgl_kernel::")) else plain(op, *a, **k)
    )
    import torchvision  # noqa: F401
    import transformers.utils.import_utils as available

    # transformers remembers what is installed; it must not see what is stood in for.
    for each in dir(available):
        if each.startswith("is_") and each.endswith("_available"):
            try:
                getattr(available, each)()
            except TypeError:
                continue
    sys.meta_path.insert(0, Stand())
    import pydantic
    import xgrammar

    xgrammar.StructuralTag = type("StructuralTag", (pydantic.BaseModel,), {})
    properties = types.SimpleNamespace(
        total_memory=memory_gib * 1024**3,
        name=name,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=132,
        gcnArchName="gfx942" if capability[1] == 4 else "gfx950",
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *_, **__: capability
    torch.cuda.get_device_name = lambda *_: name
    torch.cuda.get_device_properties = lambda *_, **__: properties
    torch.cuda.mem_get_info = lambda *_: (properties.total_memory, properties.total_memory)
    if platform == "rocm":
        torch.version.hip, torch.version.cuda = "7.0", None
    else:
        torch.version.cuda = "12.9"
    from triton.runtime import driver

    class Driver:
        def get_current_target(self):
            backend = "hip" if platform == "rocm" else "cuda"
            return types.SimpleNamespace(backend=backend, arch=capability[0] * 10, warp_size=32)

        def __getattr__(self, attribute):
            return MagicMock()

    driver.set_active(Driver())


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage()))


def run(argv: list[str], memory_mib: int, capability: tuple[int, int], case: str) -> dict[str, object]:
    """Resolve one command line, then make the later checks."""
    import sglang.srt.server_args as module

    for place in ("sglang.srt.server_args", "sglang.srt.arg_groups.memory_hook", "sglang.srt.utils.common"):
        target = sys.modules.get(place)
        if target is not None and hasattr(target, "get_device_memory_capacity"):
            target.get_device_memory_capacity = lambda *_: memory_mib
    lines = Lines()
    basic = logging.basicConfig

    def keep(**kwargs):
        basic(**{**kwargs, "stream": sys.stderr})
        logging.getLogger().addHandler(lines)

    logging.basicConfig = keep
    logging.getLogger().addHandler(lines)
    outcome: dict[str, object] = {}
    try:
        args = module.prepare_server_args(argv)
        if hasattr(args, "resolve_once"):
            args.resolve_once()
        args.check_server_args()
        outcome["resolved"] = resolved(args)
        root = Path(module.__file__).parents[2]
        later_checks.run(root, View(args), model_config(args).hf_config, capability, case)
    except SystemExit as error:
        outcome["error"] = {"kind": "argparse", "text": str(error.code)}
    except Exception as error:  # whatever the runtime raises is what is asked for
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = frame.filename.partition("/sglang/")[2] or frame.filename
        outcome["error"] = {"kind": type(error).__name__, "text": str(error), "at": f"{place}:{frame.lineno}"}
    outcome["log"] = lines.lines
    return outcome


FIELDS = (
    *("kv_cache_dtype", "attention_backend", "page_size", "tp_size", "dp_size", "attn_dp_size", "ep_size", "pp_size"),
    *(
        "attn_cp_size",
        "moe_a2a_backend",
        "moe_runner_backend",
        "moe_dense_tp_size",
        "enable_dp_attention",
        "quantization",
    ),
    *("chunked_prefill_size", "max_running_requests", "speculative_algorithm", "speculative_num_steps"),
    *("speculative_eagle_topk", "speculative_num_draft_tokens", "disable_radix_cache", "enable_mixed_chunk"),
    *("speculative_adaptive", "disable_overlap_schedule", "nsa_prefill_backend", "nsa_decode_backend"),
    *("dsa_prefill_backend", "dsa_decode_backend"),
)


class View:
    """The arguments as resolved, whichever way the version keeps them."""

    def __init__(self, args) -> None:
        self.args, self.view = args, args
        try:
            from sglang.srt.arg_groups.overrides import resolved_view
        except ImportError:
            return
        self.view = resolved_view(args)

    def __getattr__(self, name: str) -> object:
        return getattr(self.view, name) if hasattr(self.view, name) else getattr(self.args, name)


def model_config(args):
    """The model's config with the overrides in."""
    if hasattr(args, "get_model_config"):
        return args.get_model_config()
    from sglang.srt.arg_groups.overrides import model_config_of

    return model_config_of(args)


def resolved(args) -> dict[str, object]:
    """The fields that rules know, as the runtime resolved them."""
    view = View(args)
    return {name: getattr(view, name) for name in FIELDS if hasattr(view, name)}


def main() -> None:
    root, device = Path(sys.argv[1]), sys.argv[2]
    platform, capability, memory, name = device.split(":", 3)
    major, minor = map(int, capability.split("."))
    sys.path.insert(0, str(root))
    out = os.dup(1)
    os.dup2(2, 1)  # what the runtime prints must not end up among the outcomes
    pretend(platform, (major, minor), int(memory), name)
    global later_checks
    import later_checks
    import sglang.srt.server_args  # noqa: F401

    before: dict[str, str] | None = None
    for line in sys.stdin:
        case = json.loads(line)
        if before is None:
            # What is imported late is imported once, before the forks; the first case says where a model is.
            before = dict(os.environ)
            plain = [*case["argv"][:2], "--tp-size", "8", "--skip-tokenizer-init"]
            run(plain, int(memory) * 1024, (major, minor), "")
            os.environ.clear()
            os.environ.update(before)
            gc.freeze()  # a collection in a fork would copy every page
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.environ.update(case["env"])
            outcome = run(case["argv"], int(memory) * 1024, (major, minor), case.get("case", ""))
            with os.fdopen(writer, "w") as file:
                json.dump(outcome, file, default=str)
                file.write("\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            text = file.read() or '{"error": {"kind": "died", "text": ""}, "log": []}\n'
        os.waitpid(child, 0)
        os.write(out, text.encode())


if __name__ == "__main__":
    main()

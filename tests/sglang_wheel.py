"""A wheel that is built like SGLang's where it matters: argument code that imports what is not there.

The argument code is small, but it is a program of its own: it is imported, parses, resolves, refuses, crashes and hangs.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

VERSION = "0.5.99.post1"

_ARGS = '''
"""Arguments as SGLang declares, resolves and checks them."""
import argparse
import dataclasses
import logging
import os
import time

import never_heard_of                      # in no list of requirements
import torch
import zmq
from sgl_kernel import fast_attention
from sglang.srt import layers
from sglang.srt.utils import get_device_memory_capacity
from torch import nn

logger = logging.getLogger(__name__)


class Mixer(nn.Module):
    """Inherits from a stub."""

    @torch.compile(dynamic=True)
    def forward(self, x):
        return fast_attention(x)


try:
    import torchada                        # an optional plugin that a real installation lacks
    PLUGIN = True
except ImportError:
    PLUGIN = False


@dataclasses.dataclass
class ServerArgs:
    model_path: str = ""
    tp_size: int = 1
    hicache_ratio: float = 2.0
    disaggregation_ib_device: str = ""
    speculative_adaptive_config: str = ""
    dp_size: int = 1
    kv_cache_dtype: str = "auto"
    max_running_requests: int = None
    model_type: str = ""
    plugin: bool = PLUGIN
    memory: int = 0
    architecture: str = ""
    other: object = dataclasses.field(default=layers.UNKNOWN)

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--skip-tokenizer-init", action="store_true")
        parser.add_argument("--tp-size", type=int, default=1)
        parser.add_argument("--max-running-requests", type=int)
        parser.add_argument("--disaggregation-ib-device", default="")
        parser.add_argument("--speculative-adaptive-config", default="")
        parser.add_argument("--hicache-ratio", type=float, default=2.0)
        parser.add_argument("--dp-size", type=int, default=1)
        parser.add_argument("--kv-cache-dtype", choices=["auto", "bfloat16", "fp8_e4m3"], default="auto")
        parser.add_argument("--enable-dp-attention", action="store_true")

    def __post_init__(self):
        import json

        with open(os.path.join(self.model_path, "config.json")) as file:
            self.model_type = json.load(file)["model_type"]
        if self.kv_cache_dtype == "auto":
            major, _ = torch.cuda.get_device_capability()
            self.kv_cache_dtype = "fp8_e4m3" if major >= 10 else "bfloat16"
            logger.warning("Setting KV cache dtype to %s for %s", self.kv_cache_dtype, self.model_path)
        if self.max_running_requests is not None:
            self.max_running_requests //= 2
        assert torch.cuda.mem_get_info()[0] >> 20 == get_device_memory_capacity("cuda")
        self.memory = get_device_memory_capacity("cuda") >> 10
        self.architecture = torch.cuda.get_device_properties(0).gcnArchName
        os.environ["SGLANG_LEFT_BEHIND"] = "1"

    def check_server_args(self):
        if self.tp_size % self.dp_size:
            raise ValueError(f"tp_size {self.tp_size} must be divisible by dp_size {self.dp_size}")
        assert self.tp_size <= torch.cuda.device_count(), (
            "more ranks than GPUs"
        )
        if self.disaggregation_ib_device and self.disaggregation_ib_device not in os.listdir("/sys/class/infiniband"):
            raise ValueError("Invalid IB devices")
        if self.speculative_adaptive_config:
            open(self.speculative_adaptive_config).close()
        if self.dp_size == 2:
            logger.warning("The chunked prefill size is adjusted. ")
        if self.max_running_requests == 0:
            raise ValueError("max_running_requests is 0 on every rank")
        if self.dp_size == 4:
            None + 1
        if self.dp_size == 5:
            torch.cuda.never_pretended().shape.missing_dunder.__len__
        if self.dp_size == 6:
            time.sleep(float(os.environ.get("SGLANG_SLEEP_S", "0")))
        if self.dp_size == 7:
            os._exit(1)


def prepare_server_args(argv):
    print("what SGLang prints is no answer")
    if os.environ.get("SGLANG_LEFT_BEHIND"):
        raise RuntimeError("a variable of another case is still set")
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    raw = vars(parser.parse_args(argv))
    logging.basicConfig(level=logging.INFO, force=True)
    raw.pop("skip_tokenizer_init"), raw.pop("enable_dp_attention")
    return ServerArgs(**raw)
'''

_LAYERS = """
SAID = (
    "--dsa-prefill-backend flashmla_sparse_q8 "
    "is SM90-only; got compute capability sm_{major}x."
)
import triton

WIDTH = 128
UNKNOWN = getattr(triton, "unknown")
broken = 1 + WIDTH.no_such_attribute      # a layer that does not import without a GPU
"""

_UTILS = """
import subprocess


def get_device_memory_capacity(device):
    return int(subprocess.check_output(["nvidia-smi", "--query-gpu=memory.total"]))
"""

_METADATA = f"""Metadata-Version: 2.1
Name: sglang
Version: {VERSION}
Requires-Dist: torch==2.9.1
Requires-Dist: sglang-kernel==0.4.5
Requires-Dist: pyzmq>=25.1.2
Requires-Dist: triton-kernels ; extra == "other"
"""


def build_wheel(folder: Path, *, args: str = _ARGS) -> Path:
    """Write `sglang-0.5.99.post1-py3-none-any.whl` into the folder."""
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/layers.py": _LAYERS,
        "sglang/srt/utils/__init__.py": "from sglang.srt.utils.common import *",
        "sglang/srt/utils/common.py": _UTILS,
        "sglang/srt/server_args.py": args,
        "sglang/srt/kernel.so": "not unpacked",
        f"sglang-{VERSION}.dist-info/METADATA": _METADATA,
    }
    file = folder / f"sglang-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file

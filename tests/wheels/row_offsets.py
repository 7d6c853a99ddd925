"""Compiles the kernel that turns a bfloat16 pool into packed fp8 rows, and says in how many bits it computes where a row is.

    PYTHON tests/wheels/row_offsets.py FOLDER_WITH_WHEELS

PYTHON needs torch (CPU) and triton; no GPU, no dsabench. Each wheel's `_quantize_k_cache_fast_kernel` is compiled for
compute capability 9.0; the row is the first of its program's two numbers, multiplied by the row's length. In 32 bits the
product wraps from row 2^31 / 656 on, which rule SL11 is about. Prints one line per version.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from wheels import Wheel, wheels_in

KERNEL = "_quantize_k_cache_fast_kernel"
_FILE = re.compile(r"/(?:nsa|dsa)[/_]quant_k_cache\.py$")
_POINTERS = {
    "output_nope_q_ptr": "*fp8e4nv",
    "output_nope_s_ptr": "*fp32",
    "output_rope_ptr": "*bf16",
    "k_nope_ptr": "*bf16",
    "k_rope_ptr": "*bf16",
}
_CONSTANTS = {
    "NUM_NOPE_BLOCKS": 4,
    "GROUP_SIZE": 128,
    "DIM_NOPE": 512,
    "DIM_ROPE": 64,
    "FP8_MIN": -448.0,
    "FP8_MAX": 448.0,
}


def bits_of_a_row(wheel: Wheel) -> tuple[str, set[str]]:
    """Where the kernel stands, and the widths of the products of a row and its length."""
    with zipfile.ZipFile(wheel.file) as archive, TemporaryDirectory() as folder:
        (name,) = [
            name for name in archive.namelist() if _FILE.search(name) and f"def {KERNEL}" in archive.read(name).decode()
        ]
        text = _compiled(Path(archive.extract(name, folder))).asm["ttir"]
    products = re.findall(r"arith\.muli %token_id\w*, .*: i(\d+)", text)
    assert len(products) == 5, text  # one for each pointer
    return name, set(products)


def _compiled(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("quantiser", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    strides = {name.replace("_ptr", "_stride_0"): "i32" for name in _POINTERS}
    signature = {**_POINTERS, **strides, **dict.fromkeys(_CONSTANTS, "constexpr")}
    source = ASTSource(fn=getattr(module, KERNEL), signature=signature, constexprs=_CONSTANTS)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def main(folder: Path) -> None:
    for wheel in wheels_in(folder):
        name, bits = bits_of_a_row(wheel)
        print(f"{wheel.version}: {' and '.join(sorted(bits))} bits, {name} (Triton {triton.__version__})", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Compiles the kernels that turn a cache into packed fp8 rows and back, and says in how many bits they compute where a row is.

    PYTHON tests/wheels/row_offsets.py FOLDER_WITH_WHEELS

PYTHON needs torch (CPU) and triton; no GPU, no dsabench. Each wheel's kernels are compiled for compute capability 9.0; in
what comes out the row is a number of its own, multiplied by the row's length. In 32 bits the product wraps from row
2^31 / 656 on, which rules SL11 (the quantiser, of a whole bfloat16 pool) and SL13 (the dequantisers, of the rows of a
cached prefix) are about. Prints one line per version and kernel.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from wheels import Wheel, wheels_in

_ONE_ROW = r"arith\.muli %{}(?:_\d+)?, .*: i(\d+)"
_FOUR_ROWS = r"arith\.muli .*: tensor<4x1(?:x1)?xi(\d+)>"
_SHAPE = {"NUM_NOPE_BLOCKS": 4, "GROUP_SIZE": 128, "DIM_NOPE": 512, "DIM_ROPE": 64}
_PACKED = {"input_nope_q_ptr": "*fp8e4nv", "input_nope_s_ptr": "*fp32", "input_rope_ptr": "*bf16"}


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what it is compiled with."""

    name: str
    row: str
    """How its first factor is written: the row has the name that it has in the source, or a number for each of 4 rows."""
    products: int
    """How often a row is multiplied: once for each pointer to what it walks."""
    pointers: dict[str, str]
    others: dict[str, str]
    constants: dict[str, float]

    @property
    def file(self) -> str:
        """Its module, without folders."""
        return "quant_k_cache.py" if "_quantize" in self.name else "dequant_k_cache.py"


_QUANTISER = Kernel(
    "_quantize_k_cache_fast_kernel",
    row=_ONE_ROW.format("token_id"),
    products=5,
    pointers={
        "output_nope_q_ptr": "*fp8e4nv",
        "output_nope_s_ptr": "*fp32",
        "output_rope_ptr": "*bf16",
        "k_nope_ptr": "*bf16",
        "k_rope_ptr": "*bf16",
    },
    others={},
    constants={**_SHAPE, "FP8_MIN": -448.0, "FP8_MAX": 448.0},
)
_DEQUANTISER = Kernel(
    "_dequantize_k_cache_paged_kernel",
    row=_ONE_ROW.format("token_id_paged"),
    products=3,
    pointers={"output_ptr": "*bf16", **_PACKED},
    others={"page_table_1_ptr": "*i32"},
    constants={**_SHAPE},
)
_Q8 = Kernel(
    "_gather_dequant_requant_fp8_paged_kernel",
    row=_ONE_ROW.format("token_id_paged"),
    products=3,
    pointers={"output_ptr": "*fp8e4nv", **_PACKED},
    others={"page_table_1_ptr": "*i32"},
    constants={**_SHAPE},
)
_Q8_FOUR_ROWS = Kernel(
    "_gather_dequant_requant_fp8_paged_vec_kernel",
    row=_FOUR_ROWS,
    products=5,  # with those of what it writes
    pointers={"output_ptr": "*fp8e4nv", **_PACKED},
    others={"page_table_1_ptr": "*i32", "num_tokens": "i32", "total_rows": "i32"},
    constants={**_SHAPE, "TOKENS_PER_PROG": 4},
)
KERNELS = (_QUANTISER, _DEQUANTISER, _Q8, _Q8_FOUR_ROWS)
"""flashmla_sparse_q8 launches the first in 0.5.16, where it begins, and the second from 0.5.17 on, which keep the first."""


def bits_of_a_row(wheel: Wheel) -> Iterator[tuple[Kernel, str, str]]:
    """Kernel, the file that has it, and the width of the products of a row and its length, for each that the wheel has."""
    with zipfile.ZipFile(wheel.file) as archive, TemporaryDirectory() as folder:
        for kernel in KERNELS:
            file = re.compile(rf"/(?:nsa|dsa)[/_]{kernel.file}$")
            names = [name for name in archive.namelist() if file.search(name)]
            for name in names:
                if f"def {kernel.name}(" in archive.read(name).decode():
                    yield kernel, name, _bits(kernel, Path(archive.extract(name, folder)))


def _bits(kernel: Kernel, file: Path) -> str:
    text = _compiled(kernel, file).asm["ttir"]
    products = re.findall(kernel.row, text)
    assert len(products) == kernel.products, text
    return " and ".join(sorted(set(products)))


def _compiled(kernel: Kernel, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"of_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    strides = {name.replace("_ptr", "_stride_0"): "i32" for name in kernel.pointers}
    signature = {**kernel.pointers, **kernel.others, **strides, **dict.fromkeys(kernel.constants, "constexpr")}
    source = ASTSource(fn=getattr(module, kernel.name), signature=signature, constexprs=kernel.constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def main(folder: Path) -> None:
    for wheel in wheels_in(folder):
        for kernel, name, bits in bits_of_a_row(wheel):
            print(f"{wheel.version}: {kernel.name}: {bits} bits, {name} (Triton {triton.__version__})", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`--device`: what it stands for here, and whether Triton's kernels run on it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Literal

import torch

from dsabench.errors import InputError
from dsabench.reference.engine.sizes import SIZES, ModelSize
from dsabench.reference.server.arguments import ServerArgs

_INTERPRETER = "TRITON_INTERPRET"
_LEAST_COLUMNS = 16
"""Of the smallest matrix product that a Triton kernel makes; attention has the latent in four groups of columns."""


def device_of(args: ServerArgs) -> Literal["cpu", "cuda"]:
    """The device of all ranks, each of which has one GPU to itself.

    Raises:
        InputError: there is no GPU, or fewer than ranks.

    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if args.device == "cpu" or (args.device == "auto" and gpus == 0):
        return "cpu"
    if gpus == 0:
        raise InputError("--device cuda: PyTorch finds no CUDA device here (allowed: cpu)")
    ranks = args.parallel.processes
    if ranks > gpus:
        raise InputError(f"--device {args.device}: {ranks} ranks need a GPU each, and there are {gpus} (allowed: cpu)")
    return "cuda"


def check_triton(size: ModelSize, device: str, env: Mapping[str, str]) -> None:
    """Refuse the backend where its kernels cannot run.

    Raises:
        InputError: no GPU and no interpreter, no Triton, or a latent that is too narrow for a matrix product.

    """
    flags = "--dsa-prefill-backend or --dsa-decode-backend triton"
    interpreted = env.get(_INTERPRETER) == "1"
    if device == "cpu" and not interpreted:
        raise InputError(f"{flags} needs --device cuda (or {_INTERPRETER}=1, which is slow and for tests)")
    if importlib.util.find_spec("triton") is None:
        raise InputError(f"{flags}: the package triton is not installed (allowed: flashmla_sparse, flashmla_kv)")
    if size.latent // 4 < _LEAST_COLUMNS:
        wide = ", ".join(name for name, one in SIZES.items() if one.latent // 4 >= _LEAST_COLUMNS)
        raise InputError(f"{flags}: the latent of {size.name}, {size.latent}, is too narrow (allowed: {wide})")

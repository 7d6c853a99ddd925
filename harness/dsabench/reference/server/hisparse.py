"""`--enable-hisparse --hisparse-config '{…}'`: its keys, defaults and limits are sglang 0.5.23's (sparsity/factory.py:63)."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsabench.errors import InputError
from dsabench.reference.engine.settings import HiSparseConfig
from dsabench.reference.engine.sizes import ModelSize

FLAG = "--hisparse-config"


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    top_k: int | None = Field(None, ge=1)
    device_buffer_size: int | None = Field(None, ge=1)
    host_to_device_ratio: int = Field(2, ge=1)
    swap_in_block_size: int = Field(960, ge=1, le=1024)


def read(text: str | None, size: ModelSize, page_size: int) -> HiSparseConfig:
    """Parse the flag; without it the buffer has room for twice what a step attends to. `top_k` is the model's.

    Raises:
        InputError: no such JSON, or a buffer that is too small for one step, or no whole pages.

    """
    try:
        given = _Given.model_validate_json("{}" if text is None else text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{FLAG}: {place + ': ' if place else ''}{first['msg']} in {json.dumps(text)}") from error
    least = max(given.top_k or 0, size.index_topk)
    buffer = given.device_buffer_size or -(-2 * least // page_size) * page_size
    if buffer < least:
        raise InputError(f"{FLAG}: device_buffer_size ({buffer}) must be no smaller than top_k ({least})")
    if buffer % page_size:
        raise InputError(f"{FLAG}: device_buffer_size ({buffer}) is not a multiple of --page-size {page_size}")
    return HiSparseConfig(buffer, given.host_to_device_ratio, given.swap_in_block_size)

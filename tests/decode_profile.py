"""Why the Triton decode kernel stays behind FlashMLA's: its time by blocking, parts and kind of selection; results/h200/decode-profile.

`python tests/decode_profile.py` prints a JSON line a time; with `profile` it launches the kernel three times, for ncu.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median

import torch
import triton

from dsakernels.triton_kernels.blocking import Blocking, parts_for
from dsakernels.triton_kernels.sparse_attention import attend

HEADS, TOPK, CACHED, LATENT, ROPE = 128, 2048, 8192, 512, 64
PACKED_ROW = 656
CHOSEN = Blocking(64, 64, 8, 2)
REPEATS = 15

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(sequences: int, cache: str, selection: str) -> Inputs:
    """q [B, H, 576] bf16, the pool, and selections [B, 2048] int32, each drawn from 8,192 rows of its own or in a row."""
    rows = sequences * CACHED
    q = torch.randn(sequences, HEADS, LATENT + ROPE, device="cuda", dtype=torch.bfloat16)
    if cache == "fp8":
        pool = torch.empty(rows, PACKED_ROW, dtype=torch.uint8, device="cuda")
        pool[:, :LATENT] = torch.randn(rows, LATENT, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)
        pool[:, LATENT : LATENT + 16] = torch.full((rows, 4), 0.05, device="cuda").view(torch.uint8)
        rope = torch.randn(rows, ROPE, device="cuda", dtype=torch.bfloat16)
        pool[:, LATENT + 16 :] = rope.view(torch.uint8)
    else:
        pool = torch.randn(rows, LATENT + ROPE, device="cuda", dtype=torch.bfloat16)
    drawn = selection == "drawn"
    places = [
        (torch.randperm(CACHED, device="cuda") if drawn else torch.arange(CACHED, device="cuda"))[:TOPK] + one * CACHED
        for one in range(sequences)
    ]
    return q, pool, torch.stack(places).to(torch.int32)


def microseconds(call: Callable[[], object]) -> float:
    """Median of the repeats, each a replay of a CUDA graph."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    found = []
    for _ in range(REPEATS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last) * 1e3)
    return round(median(found), 1)


def cases(parts: int) -> Iterator[tuple[str, Blocking, int]]:
    """(selection, blocking, parts): every blocking, then the chosen one on rows in a row and with other parts."""
    for rows, warps, stages in product((64, 32, 16), (8, 4), (1, 2, 3, 4)):
        if warps == 8 or (rows > 16 and stages < 3):
            yield "drawn", Blocking(64, rows, warps, stages), parts
    yield "in a row", CHOSEN, parts
    yield from (("drawn", CHOSEN, other) for other in (1, 2, 4, 8))


def main() -> None:
    torch.manual_seed(0)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    if sys.argv[1:] == ["profile"]:
        q, pool, selected = inputs(128, "fp8", "drawn")
        for _ in range(3):
            attend(q, pool, selected, latent=LATENT, scale=0.04, parts=1, blocking=CHOSEN)
        torch.cuda.synchronize()
        return
    for sequences, cache in product((128, 32), ("fp8", "bf16")):
        for selection, cut, parts in cases(parts_for(sequences, HEADS, TOPK, processors)):
            given = inputs(sequences, cache, selection)
            said = {
                "sequences": sequences,
                "cache": cache,
                "selection": selection,
                "rows": cut.rows,
                "warps": cut.warps,
            }
            said |= {"stages": cut.stages, "parts": parts}
            try:
                said["us"] = microseconds(
                    lambda given=given, cut=cut, parts=parts: attend(
                        *given, latent=LATENT, scale=0.04, parts=parts, blocking=cut
                    )
                )
            except triton.runtime.errors.OutOfResources as error:
                said["fault"] = str(error)
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

"""What asking a tuned table costs a runtime, on this machine: `prefill_impl` is called once for each prefill batch.

python tests/tuned_choice_cost.py

The loader that patch and plugin deliver, with the committed tables and the GPU's name given (no GPU is asked). Prints the
median of 5 rounds of 100,000 choices.
"""

from __future__ import annotations

import os
import timeit
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
_CALLS, _ROUNDS = 100_000, 5


def main() -> None:
    os.environ["SGLANG_DSA_CONFIG_DIR"] = str(ROOT / "results" / "h200" / "tables")
    from dsabench.emit.payload import dsa_tuned

    vars(dsa_tuned)["_device_name"] = lambda: "NVIDIA_H200"
    backend = SimpleNamespace(num_q_heads=128, dsa_index_topk=2048, dsa_kv_cache_store_fp8=True)
    for new, kv in ((160, 24160), (1000, 14000), (7000, 7000)):
        batch = SimpleNamespace(forward_mode=SimpleNamespace(name="EXTEND"), extend_num_tokens=new, seq_lens_sum=kv)
        chosen = dsa_tuned.prefill_impl(backend, batch, keep=False)
        assert chosen is not None
        ask = partial(dsa_tuned.prefill_impl, backend, batch, keep=False)
        rounds = timeit.repeat(ask, number=_CALLS, repeat=_ROUNDS)
        print(f"{new} new of {kv} tokens: {chosen}, {median(rounds) / _CALLS * 1e6:.2f} µs a batch")


if __name__ == "__main__":
    main()

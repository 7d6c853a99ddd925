"""`dsabench bench --plot`: the picture of the run, after its line is written."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from dsabench.model.sample import RequestSample
from dsabench.model.workload import Workload
from dsabench.reporting.timeline import write_timeline


def draw_bench(args: Namespace, samples: Sequence[RequestSample]) -> None:
    """Write the picture. The workload says only what decides its steady state.

    Raises:
        InputError: no request brought a token, or the file has another suffix.
        StoreError: disk full or read-only.

    """
    workload = Workload(
        name="bench",
        dataset=args.dataset_name,
        num_prompts=len(samples),
        max_concurrency=args.max_concurrency,
        request_rate=None if math.isinf(args.request_rate) else args.request_rate,
    )
    limit = f", at most {args.max_concurrency} at a time" if args.max_concurrency else ""
    title = f"{args.backend}, {args.dataset_name}, {len(samples)} requests at {args.request_rate:g} a second{limit}"
    write_timeline(samples, Path(args.plot), title, workload)

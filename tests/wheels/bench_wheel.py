"""Imports `sglang.benchmark` from an unpacked wheel without the server's dependencies.

For an interpreter of its own with numpy, aiohttp, requests, tqdm, orjson, msgspec, tokenizers, transformers, jinja2,
pillow and pybase64: `pip download --no-deps sglang==0.5.23`, unzip, and give the folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def import_serving(folder: Path) -> Any:
    """The wheel's `sglang.benchmark.serving`; the packages around it are stood in for, they import the server."""
    root = folder.resolve() / "sglang"
    if not (root / "benchmark" / "serving.py").is_file():
        sys.exit(f"{folder}: no sglang/benchmark/serving.py; unpack the wheel there")
    for name in ("sglang", "sglang.srt", "sglang.srt.disaggregation", "sglang.srt.utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    disaggregation = ModuleType("sglang.srt.disaggregation.utils")
    disaggregation.FAKE_BOOTSTRAP_HOST = "2.2.2.2"  # type: ignore[attr-defined]
    network = ModuleType("sglang.srt.utils.network")
    network.resolve_base_url = lambda url, host, port: url or f"http://{host}:{port}"  # type: ignore[attr-defined]
    network.resolve_host_port = lambda url, host, port: url or f"{host}:{port}"  # type: ignore[attr-defined]
    huggingface = ModuleType("datasets")  # for image and long-context benchmarks, which are not run here
    huggingface.load_dataset = None  # type: ignore[attr-defined]
    sys.modules.setdefault("datasets", huggingface)
    sys.modules |= {disaggregation.__name__: disaggregation, network.__name__: network}
    from sglang.benchmark import serving  # type: ignore[import-not-found]

    return serving


def parse(serving: Any, words: Sequence[str]) -> argparse.Namespace:
    """What the wheel's own parser makes of a command line."""
    caught: list[argparse.Namespace] = []
    run, argv = serving.run_benchmark, sys.argv
    serving.run_benchmark = caught.append
    sys.argv = ["serving", *words]
    try:
        serving.cli_main()
    finally:
        serving.run_benchmark, sys.argv = run, argv
    return caught[0]

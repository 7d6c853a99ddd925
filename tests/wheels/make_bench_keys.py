"""Writes tests/golden/bench_serving/keys.json: bench_serving 0.5.23's flags, the keys of its record and its printed lines.

    PYTHON tests/wheels/make_bench_keys.py FOLDER_WITH_UNPACKED_WHEEL

PYTHON and the folder: see `bench_wheel.py`. Runs one load against a server of its own and masks the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench_wheel import import_serving, parse

from unit.cli.bench_server import BenchServerThread

GOLDEN = Path(__file__).parents[1] / "golden" / "bench_serving"
FLAGS = (
    "--backend sglang --dataset-name random-ids --tokenize-prompt --random-input-len 8 --random-output-len 9"
    " --num-prompts 6 --goodput ttft:500 e2el:1000 --cache-report --disable-tqdm"
)


def main(folder: Path) -> None:
    serving = import_serving(folder)
    tokenizer = str(GOLDEN / "data" / "tokenizer")
    records: list[dict[str, Any]] = []
    printed = io.StringIO()
    with BenchServerThread() as server, tempfile.TemporaryDirectory() as place:
        for more in ([], ["--output-details"]):
            file = Path(place) / "out.jsonl"
            words = [*FLAGS.split(), *more, "--base-url", server.url, "--tokenizer", tokenizer, "--model", tokenizer]
            printed.seek(0)
            printed.truncate()
            with contextlib.redirect_stdout(printed):
                serving.run_benchmark(parse(serving, [*words, "--output-file", str(file)]))
            records.append(json.loads(file.read_text().splitlines()[-1]))
    plain, full = map(list, records)
    optional = {"goodput_slos_ms", "request_goodput", "slo_attainment", "slo_attainment_by_metric", "cache_report"}
    text = printed.getvalue()
    block = re.sub(r"\d+(\.\d+)? *(?=%?\n)", "N", text[text.index("\n============ Serving") :])
    keys = {
        "record": [key for key in plain if key not in optional],
        "details": [key for key in full if key not in plain],
        "block": block.splitlines(),
        "flags": flags_of(serving),
    }
    (GOLDEN / "keys.json").write_text(json.dumps(keys, indent=1) + "\n")


def flags_of(serving: Any) -> list[str]:
    """Every flag that its parser takes."""
    seen: list[str] = []
    add = argparse._ActionsContainer.add_argument

    def note(self: Any, *names: str, **rest: Any) -> Any:
        seen.extend(name for name in names if name.startswith("--") and name != "--help")
        return add(self, *names, **rest)

    argparse._ActionsContainer.add_argument = note  # type: ignore[method-assign]
    parse(serving, [])
    return sorted(set(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

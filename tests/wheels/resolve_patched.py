"""Patches copies of unpacked wheels with a table, and has their own resolution of arguments say what becomes the default.

    PYTHONPATH=harness:kernels:tests python tests/wheels/resolve_patched.py FOLDER VERSION… --python PATH

FOLDER has one unpacked wheel per version (`FOLDER/0.5.16/sglang/…`), `--python` is what `run_rules.py` asks for. Prints, for
an H200 with fp8: no flag, a flag of the user, and heads that no table is for. Exits 1 where one is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from questions import config_of
from runtime_process import started

from dsabench.emit.patch import apply_patch, plan_patch
from dsabench.emit.tables import File
from dsabench.emit.tree import find_tree
from dsabench.model.hardware import HARDWARE
from dsabench.model.tuned_table import TunedTable
from dsabench.sglang.versions import parse_version

TABLE = TunedTable.model_validate(
    {
        "kind": "flashmla_auto",
        "runtime": "sglang",
        "device": "NVIDIA_H200",
        "heads_per_rank": 16,
        "index_topk": 2048,
        "kv_cache_dtype": "fp8_e4m3",
        "evidence": {"label": "measured"},
        "rule": {"form": "constant", "kernel": "flashmla_sparse"},
    }
)


def ask(folder: Path, version: str, python: str, models: Path) -> list[str]:
    """The prefill backend of each of the three."""
    name = "nsa" if parse_version(version) < (0, 5, 13) else "dsa"
    model = models / version
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config_of("v3.2", parse_version(version))))
    words = ["--model-path", str(model), "--tp-size", "8", "--skip-tokenizer-init", "--kv-cache-dtype", "fp8_e4m3"]
    more: list[list[str]] = [
        [],
        [f"--{name}-prefill-backend", "flashmla_kv"],
        ["--dp-size", "8", "--enable-dp-attention"],
    ]
    with started(folder, python, HARDWARE["h200"]) as runtime:
        return [runtime.resolve([*words, *extra], {})["resolved"][f"{name}_prefill_backend"] for extra in more]


def main() -> int:
    """Print a line a version."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--python", required=True)
    given = parser.parse_args()
    wrong = False
    with TemporaryDirectory() as place:
        models = Path(place) / "models"
        models.mkdir()
        for version in given.versions:
            copy = Path(place) / version
            shutil.copytree(given.folder / version / "sglang", copy / "sglang")
            apply_patch(plan_patch(find_tree(copy), [File(Path(TABLE.file_name), TABLE)]))
            backends = ask(copy, version, given.python, models)
            wrong |= backends != ["flashmla_auto", "flashmla_kv", "flashmla_kv"]
            print(version, *backends)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

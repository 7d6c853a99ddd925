"""Patches copies of added releases with a table, and has their own resolution of arguments say what becomes the default.

    PYTHONPATH=harness:kernels:tests python tests/wheels/resolve_patched.py VERSION…

Prints, for an H200 with fp8: no flag, a flag of the user, and heads that no table is for. Exits 1 where one is not as it
should be.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dsabench.emit.patch import apply_patch, plan_patch
from dsabench.emit.tables import File
from dsabench.emit.tree import find_tree
from dsabench.model.hardware import HARDWARE
from dsabench.model.tuned_table import TunedTable
from dsabench.sglang.model_config import config_json
from dsabench.sglang.resolve.client import ArgumentCase, ArgumentProcess, source_of
from dsabench.sglang.resolve.releases import AddedRelease, added_release
from dsabench.sglang.rules.resolve import default_kernels
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


def ask(release: AddedRelease, tree: Path) -> list[str]:
    """The prefill backend of each of the three."""
    version = parse_version(release.version)
    name = "nsa" if version < (0, 5, 13) else "dsa"
    config = config_json("v3.2", version)
    assert config is not None
    words = ("--model-path", "v3.2", "--tp-size", "8", "--kv-cache-dtype", "fp8_e4m3")
    more = ((), (f"--{name}-prefill-backend", "flashmla_kv"), ("--dp-size", "8", "--enable-dp-attention"))
    process = ArgumentProcess(replace(source_of(release), tree=tree), HARDWARE["h200"])
    answers = process.ask([ArgumentCase((*words, *extra), models={"v3.2": config}) for extra in more])
    process.close()
    return [str(answer.resolved.get(f"{name}_prefill_backend", answer.text)) for answer in answers]


def main(versions: list[str]) -> int:
    """Print a line a version."""
    wrong = False
    with TemporaryDirectory() as place:
        for version in versions:
            release = added_release(version)
            if release is None:
                sys.exit(f"{version} was not added: dsabench runtime add sglang=={version}")
            copy = Path(place) / version
            shutil.copytree(release.tree, copy)
            apply_patch(plan_patch(find_tree(copy), [File(Path(TABLE.file_name), TABLE)]))
            backends = ask(release, copy)
            shipped = default_kernels(HARDWARE["h200"], "fp8_e4m3", parse_version(version))
            wrong |= backends != ["flashmla_auto", "flashmla_kv", shipped and shipped.prefill]
            print(version, *backends)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

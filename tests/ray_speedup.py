"""How much faster two Ray nodes are than one, with work that takes time and no processor: servers that wait before they are ready, or before they answer.

    python tests/ray_speedup.py --runs 3                 # servers take 6 s to boot; 12 minutes
    python tests/ray_speedup.py --runs 3 --work evals    # the gate asks every setting 24 questions, each takes 1 s

Both nodes are raylets on this machine, so they share its cores: what dsabench itself computes on each node is in the times. One node and two take turns.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import ray
import yaml
from ray.cluster_utils import Cluster

from dsabench.model.record import Measured, Scored
from dsabench.results.journal import Journal
from sglang_server import install_server
from studies import SHORT_EVAL

ROOT = Path(__file__).parents[1]
SETTINGS = 12
SCRIPT = """
import time

def pause_s(settings):
    return 0.002

def answer(settings, prompt):
    time.sleep(1.0)
    return "7"
"""


def write_study(folder: Path, work: str) -> Path:
    """Settings of a stand-in that differ in the chunk; for evals also in the kernel, which may change answers, so that each one is asked."""
    study: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "h200-slice.yaml").read_text())
    questions = SHORT_EVAL.replace("endpoint: chat", "endpoint: completions").replace("per_cell: 4", "per_cell: 24")
    (folder / "eval.yaml").write_text(questions)
    (folder / "script.py").write_text(SCRIPT)
    env = {"PYTHONPATH": str(install_server(folder / "site")), "STAND_IN_SCRIPT": str(folder / "script.py")}
    study["runtime"]["launch"] = {
        "python": sys.executable,
        "env": {**env, "STAND_IN_BOOT_S": "6" if work == "boots" else "1"},
    }
    load = {"name": "load", "dataset": "random-ids", "input_len": 32, "output_len": 4}
    study |= {
        "workloads": [{**load, "num_prompts": 12, "max_concurrency": 4}],
        "first": [],
        "sweeps": [{"axes": {"chunked_prefill_size": [1024 * n for n in range(1, SETTINGS + 1)]}}],
        "proposer": {"kind": "random", "seed": 0},
        "objective": {"metric": "total_throughput_tok_s", "direction": "maximize"},
        "budget": {"confirm_boots": 4},
        "gate": {"eval": str(folder / "eval.yaml"), "margin": 0.05, "repeat": 1, "ask": "settings"},
    }
    if work == "boots":
        study["gate"] = None
    else:
        study["sweeps"][0]["axes"]["prefill_backend"] = ["flashmla_sparse"]
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


def timed(folder: Path, work: str, nodes: int) -> tuple[float, int, int]:
    """(seconds of the command, boots, evals) on so many nodes."""
    folder.mkdir()
    study = write_study(folder, work)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=1, num_gpus=1)
        words = [
            "sweep",
            str(study),
            "--results",
            str(folder / "r"),
            "--executor",
            "ray",
            "--ray-address",
            cluster.address,
        ]
        started_s = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "dsabench", *words], capture_output=True, text=True, check=False)
        took_s = time.monotonic() - started_s
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert done.returncode in (0, 1), done.stderr
    records = Journal(folder / "r").read().records
    measured = [one for one in records if isinstance(one.outcome, Measured)]
    assert len({one.id for one in measured}) == SETTINGS + (work == "evals"), done.stderr
    return took_s, len({one.boot for one in records}), sum(isinstance(one.outcome, Scored) for one in records)


def main() -> None:
    """One node and two in turns, each run from nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", choices=("boots", "evals"), default="boots")
    args = parser.parse_args()
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    took: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for run, nodes in itertools.product(range(args.runs), (1, 2)):
            seconds, boots, evals = timed(Path(folder) / f"{run}-{nodes}", args.work, nodes)
            took[nodes].append(seconds)
            print(f"run {run + 1}, {nodes} node(s): {seconds:.1f} s, {boots} boots, {evals} evals", flush=True)
    ratios = [one / two for one, two in zip(took[1], took[2], strict=True)]
    print(f"{min(ratios):.2f} to {max(ratios):.2f} times as fast, {median(ratios):.2f} in the median of {args.runs}")


if __name__ == "__main__":
    main()

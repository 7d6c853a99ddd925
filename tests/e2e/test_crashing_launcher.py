"""A sweep of an sglang that crashes as sglang does: its launcher logs what happened and kills itself with SIGKILL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsabench.model.record import Failed, FaultKind
from dsabench.results.journal import Journal
from program import dsabench
from unit.sglang.stand_in import install_stand_in

pytestmark = pytest.mark.slow

LAUNCHER = """
import os, signal, sys
print(open(sys.argv[0].replace("launch_server.py", "crash.txt")).read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
CONFIG = """
name: crashing
runtime:
  kind: sglang
  launch: {{python: {python}, env: {{PYTHONPATH: {site}}}}}
  model: deepseek-ai/DeepSeek-V3.2
  base: {{tp_size: 1}}
  ready_timeout_s: 60
workloads:
  - {{name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}}
sweeps:
  - axes: {{kv_cache_dtype: [auto, fp8_e4m3]}}
objective: {{metric: output_throughput_tok_s, direction: maximize}}
budget: {{max_boots: 7, confirm_boots: 3}}
"""
HIT = (
    '[2026-06-17 17:51:53 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File "a.py", line 1\n'
)
SIGQUIT = "\n\n[2026-06-17 17:51:53] Received sigquit from a child process. It usually means the child failed."


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("exited", "AttributeError: 'NoneType' object has no attribute 'shape'"),
        ("gpu_error", "Memory access fault by GPU node-5 on address 0x7ee24e9fe000. Reason: Page not present"),
        ("jit_compile", 'RuntimeError: Assertion error (compiler.hpp:187): "NVCC version should be >= 12.3"'),
    ],
)
def test_one_boot_and_the_logs_own_words(tmp_path: Path, kind: FaultKind, said: str) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    (site / "sglang" / "launch_server.py").write_text(LAUNCHER)
    (site / "sglang" / "crash.txt").write_text(HIT + said + SIGQUIT)
    config = tmp_path / "crashing.yaml"
    config.write_text(CONFIG.format(python=sys.executable, site=site))
    done = dsabench("sweep", str(config), "--results", str(tmp_path / "results"))
    assert done.returncode == 3, done.stderr
    records = Journal(tmp_path / "results").read().records
    assert len({record.boot for record in records}) == 1, "the same crash is not met twice"
    (outcome,) = {record.outcome for record in records}
    assert isinstance(outcome, Failed)
    assert (outcome.fault, outcome.message, outcome.transient) == (kind, said, False)
    assert said in " ".join(done.stdout.split())

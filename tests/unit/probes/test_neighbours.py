from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from dsabench.probes.disturbance import warn_of_others
from dsabench.probes.neighbours import CpuUse

pytestmark = pytest.mark.timing

SPIN = "import time\nwhile time.process_time() < 0.4: pass"
"""So much CPU time, however long that takes beside others."""


def test_our_own_children_are_not_others() -> None:
    core = min(os.sched_getaffinity(0))
    before = CpuUse.now((core,))
    spinning = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", SPIN])
    spinning.wait()
    after = CpuUse.now((core,))
    ours = after.ours_s - before.ours_s
    assert ours > 0.3
    assert after.others_share(before) <= 1.0 - ours / (after.at_s - before.at_s) + 0.15


def test_somebody_elses_work_counts() -> None:
    core = min(os.sched_getaffinity(0))
    # A process that is not below us: its parent ends at once, so it falls to the system's init.
    code = f"import subprocess, sys; subprocess.Popen(['taskset', '-c', '{core}', sys.executable, '-c', {SPIN!r}])"
    before = CpuUse.now((core,))
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(0.9)
    others = CpuUse.now((core,)).others_share(before)
    assert others > 0.2
    assert "other processes used" in (warn_of_others(others) or "")
    assert not [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE]


def test_a_quiet_machine_is_not_warned_of() -> None:
    assert warn_of_others(0.05) is None

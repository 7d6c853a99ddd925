"""The time in which a thread ran or waited for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from dsabench.machine.cpu_use import wanted_core_s

BURN = "import os\nos.sched_setaffinity(0, {int(__import__('sys').argv[1])})\nprint(1, flush=True)\nwhile True: pass"


def test_threads_that_share_a_core_want_it_all_the_time() -> None:
    core = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", BURN, core]
    burning = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for one in burning:
            assert one.stdout is not None
            one.stdout.readline()
        before, before_s = [wanted_core_s(one.pid) for one in burning], time.perf_counter()
        time.sleep(1.0)
        after, passed_s = [wanted_core_s(one.pid) for one in burning], time.perf_counter() - before_s
        for one, earlier, later in zip(burning, before, after, strict=True):
            assert (later[one.pid] - earlier[one.pid]) / passed_s > 0.9
    finally:
        for one in burning:
            one.kill()
            one.communicate()
    assert wanted_core_s(burning[0].pid) == {}

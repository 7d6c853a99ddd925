from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.errors import BusyError
from dsabench.store.claim import claim

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom dsabench.store.claim import claim\n"
    "with claim(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


def test_a_second_sweep_is_told_who_holds_the_folder_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=f"pid {holder.pid}"), claim(tmp_path):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with claim(tmp_path):
        pass

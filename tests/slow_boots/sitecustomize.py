"""Delays every start of the reference runtime by `SLOW_BOOT_S` seconds; on the path of the servers of a sweep alone.

dsabench sweep configs/local.yaml --launch-env PYTHONPATH=tests/slow_boots --launch-env SLOW_BOOT_S=45
"""

import os
import sys
import time

if "dsabench.reference.launch_server" in sys.orig_argv:
    time.sleep(float(os.environ.get("SLOW_BOOT_S", "0")))

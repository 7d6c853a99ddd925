"""`python -m dsabench.reference.launch_server --model small --port 30000 …`: the program is in `dsabench.serving`."""

from __future__ import annotations

import sys

from dsabench.serving.early import main

if __name__ == "__main__":
    sys.exit(main())

"""The process that runs kernels: `python -m dsabench.kernelbench.worker`, lines of JSON in and out.

In come the request and, once `device` is said, the points that are done. Every line out has `is`: `device` (first),
`candidate`, `asked` (points, and how many are known), `begin` (how many are measured), `doing` (what it is at, for who waits), `start` (before a candidate runs, so that a
crash can be laid to it), `check`, `point`, `ceilings`, `left` (points that the budget left), `mistake` (of the
request), `lost` (an illegal access ended the CUDA context; another process has to go on), `end`. What kernels and
compilers print goes to standard error.
"""

from __future__ import annotations

import os
import select

from dsabench.signals import die_with_parent


def main() -> None:
    """Answer one request."""
    _die_with_the_conductor()
    # here, as PyTorch takes seconds, in which the conductor may be killed too
    from dsabench.kernelbench.answer import answer  # noqa: PLC0415

    answer()


def _die_with_the_conductor() -> None:
    """A kernel that waits for ever would otherwise outlive a conductor that was killed, and hold the GPU."""
    die_with_parent()
    its_end = select.poll()
    its_end.register(0, 0)  # a hang-up is told though nothing is asked for
    if its_end.poll(0):
        os._exit(1)  # it died before the line above; its number cannot tell, as an interpreter may be a script


if __name__ == "__main__":
    main()

"""What ssh, srun and the engines of containers say when they cannot start a command, or lose it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dsabench.errors import TrialFault
from dsabench.model.record import FaultKind, Stage
from dsabench.runtimes.faults import Ending, fault_of_ending
from dsabench.runtimes.keeper import CANNOT

_SIGNS: tuple[tuple[FaultKind, re.Pattern[str]], ...] = (
    (
        "unreachable",
        re.compile(
            r"^ssh: (?:connect to host|Could not resolve)|^srun: error: (?:Node failure|Unable to contact slurm)"
            r"|^(?:Connection|client_loop|kex_exchange_identification|Timeout,)"
            r".*(?:clos|reset|timed out|disconnect|not responding)"
            r"|Cannot connect to the Docker daemon|[Cc]annot connect to Podman",
        ),
    ),
    ("killed", re.compile(r"^(?:srun|slurmstepd\S*): error: \*\*\* (?:JOB|STEP) .*CANCELLED")),
    (
        "missing_file",
        re.compile(
            r"^dsabench: cannot run|[Uu]nable to find image|pull access denied|manifest unknown|No such image"
            r"|image not known|did not resolve to an alias|(?:initializing|pinging) .*source"
            r"|executable file not found|unable to start container process: exec|^slurmstepd\S*: error: execve\(\)",
        ),
    ),
    (
        "illegal_config",
        re.compile(
            r"^dsabench: \S+ is another machine|^Host key verification failed|Permission denied \("
            r"|^(?:Bad|command-line).*(?:option|configuration)|^docker: |^unknown (?:shorthand )?flag:|^Error: "
            r"|^srun: (?:error|fatal): (?:Unable to (?:allocate|create)|.*[Ii]nvalid|Could not establish a config)"
            r"|^srun: (?:unrecognized|invalid) option",
        ),
    ),
)
_OWN_CODES = {CANNOT, 126, 127, 255}
"""Of ssh (255), of engines of containers and of shells that find no program; srun has the task's, or 1."""
_OF_THE_TASK = re.compile(
    r"^srun: (?:error: \S+: tasks? [\d,-]+: |launch/slurm: |Job step aborted|[Tt]erminating|Force Terminated)"
    r"|^Connection to \S+ closed\.|^Run 'docker run --help'|^See 'docker run --help'|^\s*$"
)
"""Lines behind the task's own last ones that say no more than that it ended."""


def plain_lines(text: str) -> list[str]:
    """The lines, without what a client adds when a task has ended."""
    return [line.strip() for line in text.splitlines() if not _OF_THE_TASK.search(line)]


def complaint(text: str, code: int | None) -> tuple[FaultKind, str] | None:
    """The first line with which a client says that it could not do its part, and what that means.

    Codes other than a client's own are the server's, of whose words only srun's and ours are told apart.
    """
    lines = plain_lines(text)
    if code not in _OWN_CODES:
        lines = [line for line in lines if line.startswith(("srun: ", "slurmstepd"))]
    return next(_complaints(lines), None)


def last_words(text: str, code: int | None) -> str:
    """What a client complains of, else the last line that says something; empty where there is none."""
    if found := complaint(text, code):
        return found[1]
    return next(reversed(plain_lines(text)), "")


def fault_of_client(ending: Ending, log_tail: str, stage: Stage) -> TrialFault:
    """As `fault_of_ending` for a server behind a client. A machine that is not reached may be reached again."""
    if found := complaint(log_tail, ending.code):
        kind, line = found
        return TrialFault(kind, line, stage=stage, log_tail=log_tail, transient=kind in {"unreachable", "killed"})
    fault = fault_of_ending(ending, "\n".join(plain_lines(log_tail)), stage)
    return TrialFault(fault.kind, fault.message, stage=stage, log_tail=log_tail, transient=fault.transient)


def _complaints(lines: Sequence[str]) -> Iterator[tuple[FaultKind, str]]:
    for line in lines:
        for kind, sign in _SIGNS:
            if sign.search(line):
                yield kind, line
                break

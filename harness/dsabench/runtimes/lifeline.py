"""What is put around a server's command where a client starts it elsewhere: ssh, srun, an engine of containers.

To end such a client does not end the server: ssh tells the far side nothing, and a container is its engine's child. So the
keeper runs there as well, and owns the server there. Its stdin is the lifeline: the client's stdin, a pipe of which only
the keeper here holds the other end. When that is closed, by a stop or by whatever kills dsabench, its keeper or the
client, the far side stops the server. A TERM, INT, HUP or QUIT to the guard there (docker stop, scancel, the hang-up of
`ssh -tt`) means the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dsabench.runtimes.keeper import machine
from dsabench.runtimes.orphans import MARK

_KEEPER = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True, slots=True)
class Lifeline:
    """What the far side is told."""

    boot: str
    """The uuid that its processes carry in their environment, there too."""
    stop_timeout_s: float = 20.0
    """From TERM to KILL."""
    loopback: bool = False
    """The server is looked for at loopback: on another machine it could not be reached."""

    def around(self, interpreter: str, words: Sequence[str]) -> tuple[str, ...]:
        """The words behind a keeper."""
        job = {
            "argv": list(words),
            "env": {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", MARK: self.boot},  # no client brings them along
            "stop_timeout_s": self.stop_timeout_s,
            "cwd": ".",
            "log": None,
            "cores": (),
            "keep_fds": (),
            "term_all": False,
            "lifeline": False,
            "machine": machine() if self.loopback else None,
            "elsewhere": "nothing here can reach its loopback; name its address in runtime.launch.sites.server.hosts",
        }
        return (interpreter, "-I", "-S", "-c", _program(), json.dumps(job).replace("!", "\\u0021"))


@cache
def _program() -> str:
    return one_line(_KEEPER.read_text(encoding="utf-8"))


def one_line(program: str) -> str:
    """The same program for `python -c`; without line breaks and `!`, which a remote csh takes in no quotes."""
    return f"exec({program!r})".replace("!", "\\x21")

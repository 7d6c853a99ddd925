"""The `dsabench` command: every error becomes one line on stderr and an exit code.

0 done · 1 a gate failed · 2 the user's input is wrong · 3 the runtime failed · 130 interrupted (state is kept).
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from dsabench.errors import DsabenchError, InputError

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    argv = sys.argv[1:]
    code = run(argv)
    if code == _INTERRUPTED:
        from dsabench.cli.interrupts import ignore_interrupts

        ignore_interrupts()
    if argv[:1] == ["bench"]:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """Exit without taking the interpreter apart: that costs a load generator as much CPU as reading 5,000 frames."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone, or it was closed for that reason
            stream.flush()
    os._exit(code)


def run(argv: list[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        return _bench(argv[1:]) if argv[:1] == ["bench"] else _typed(argv)
    except InputError as error:
        return _say(str(error), 2)
    except DsabenchError as error:
        return _say(str(error), 3)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`… | head`): nothing is wrong, and nothing more can be said.
        sys.stderr.close()
        return 0
    except OSError as error:
        return _say_os_error(error)


def _say_os_error(error: OSError) -> int:
    """2 of a file or folder that the user named, else 3: 1, as of a traceback, would say that a gate failed.

    Asking whether a file is there is refused already below a closed folder, and of a name longer than any.
    """
    where = "" if error.filename is None else f"{error.filename}: "
    named = isinstance(error, PermissionError) or error.errno == errno.ENAMETOOLONG
    return _say(f"{where}{error.strerror or error}", 2 if named else 3)


def _bench(argv: list[str]) -> int:
    """Without typer: the start of a load generator counts in its cost."""
    from dsabench.cli.bench import bench

    return bench(argv)


def _typed(argv: list[str]) -> int:
    import typer
    from typer.exceptions import TyperException

    from dsabench.cli.app import app

    try:
        code = app(args=argv, prog_name="dsabench", standalone_mode=False)
    except TyperException as error:
        return _say_usage(error)
    except typer.Abort:
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _say_usage(error: TyperException) -> int:
    """A wrong command line in one line; `dsabench` without a word is asking for help."""
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    return _say(" ".join(message.split()), 2)

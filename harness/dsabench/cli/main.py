"""The `dsabench` command: every error becomes one line on stderr and an exit code.

0 done · 1 a gate failed · 2 the user's input is wrong · 3 the runtime failed · 130 interrupted (state is kept).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from dsabench.errors import DsabenchError, InputError

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command line and exit with its code."""
    argv = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # replace … and ± on a terminal with ASCII only
    code = run(argv)
    if code == _INTERRUPTED:
        from dsabench.signals import ignore_interrupts

        ignore_interrupts()
    code = _written(code)
    if argv[:1] == ["bench"]:
        _leave(code)
    sys.exit(code)


def _written(code: int) -> int:
    """Flush the output and return the exit code. The interpreter would flush later and exit with 120 on failure."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        return _say_unwritten(error)
    except (AttributeError, ValueError):  # it was closed before we started
        pass
    return code


def _drop_output() -> None:
    """Discard everything that is not written yet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_unwritten(error: OSError) -> int:
    _drop_output()
    return _say(f"the output cannot be written: {error.strerror}", 3)


def _leave(code: int) -> NoReturn:
    """Exit without the interpreter's cleanup, which costs a load generator as much CPU as reading 5,000 frames."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone, or closed the pipe for that reason
            stream.flush()
    os._exit(code)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _bench(argv[1:]) if argv[:1] == ["bench"] else _typed(argv)
    except InputError as error:
        return _say(str(error), 2)
    except DsabenchError as error:
        return _say(str(error), 3)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        return _say_system(error)


def _say_system(error: OSError) -> int:
    """Print one line and return the matching exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output ended (`… | head`). Nothing is wrong, and nothing more can be printed.
        sys.stderr.close()
        return 0
    if error.filename is None and error.errno in _NO_ROOM:
        # An error without a file name comes from our output, which may be a log on a full disk.
        return _say_unwritten(error)
    # An unreadable file or folder, or a name that is too long, is the user's mistake. Other system errors exit with
    # 3; 1 would mean that a gate failed.
    named = isinstance(error, PermissionError) or error.errno == errno.ENAMETOOLONG
    where = "" if error.filename is None else f"{error.filename}: "
    return _say(f"{where}{error.strerror or error}", 2 if named else 3)


def _bench(argv: list[str]) -> int:
    """Start without typer, because the start of a load generator counts in its cost."""
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
    except SystemExit as end:
        if not end.code:  # completion of a shell's command line
            return 0
        # rich exits with 1 when the reader is gone, but here 1 means that a gate failed
        raise BrokenPipeError from None
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    # A message may quote a server, and must not steer the terminal.
    shown = "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in message)
    print(f"error: {shown}", file=sys.stderr)
    return code


def _say_usage(error: TyperException) -> int:
    """Print one line for a wrong command line. `dsabench` alone prints the help."""
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    return _say(" ".join(message.split()), 2)

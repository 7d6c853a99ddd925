"""How far a load test is: one line that overwrites itself on a terminal, a line every tenth elsewhere. On stderr."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_INTERVAL_S = 0.1
Tell = Callable[[int, int], None]
"""Told (ended, all) after requests end."""


@contextmanager
def progress_for(args: Namespace, count: int) -> Iterator[Tell | None]:
    """None where nothing is to be shown."""
    if args.disable_tqdm or args.json:
        yield None
    elif sys.stderr.isatty():
        yield _live()
        print(f"\r{count}/{count} requests\x1b[K", file=sys.stderr)
    else:
        yield _plain()


def _live() -> Tell:
    began_s = shown_s = time.perf_counter()

    def tell(ended: int, count: int) -> None:
        nonlocal shown_s
        now_s = time.perf_counter()
        if now_s - shown_s < _INTERVAL_S:
            return
        shown_s = now_s
        text = f"\r{ended}/{count} requests, {now_s - began_s:.0f} s"
        if ended:
            text += f", about {(now_s - began_s) / ended * (count - ended):.0f} s left"
        print(f"{text}\x1b[K", end="", file=sys.stderr, flush=True)

    return tell


def _plain() -> Tell:
    began_s, next_tenth = time.perf_counter(), 1

    def tell(ended: int, count: int) -> None:
        nonlocal next_tenth
        if ended * 10 >= next_tenth * count:
            next_tenth = ended * 10 // count + 1
            print(f"[{time.perf_counter() - began_s:6.1f} s] {ended}/{count} requests", file=sys.stderr, flush=True)

    return tell

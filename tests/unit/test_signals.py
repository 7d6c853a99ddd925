"""Signals that come while a loop turns, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import asyncio, os, signal, sys, threading, time
from dsabench.signals import stop_at_any_signal, run_loop

def ask(number=signal.SIGINT):
    os.kill(os.getpid(), number)

def ask_after(*pauses_s, number=signal.SIGINT):
    def asking():
        for pause_s in pauses_s:
            time.sleep(pause_s)
            ask(number)
    threading.Thread(target=asking, daemon=True).start()

"""

WAKE_UP_LOST = """
async def slow_to_end():
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)

async def work():
    global victim
    victim = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0.01)
    ask()
    try:
        await asyncio.sleep(60)
    finally:
        victim.cancel()
        await asyncio.wait([victim])

victim, current, asked = None, None, False

def at_each_line(frame, event, _):
    # Ask again just when the loop has taken the victim's wake-up out of its queue, and is to run it next.
    global current, asked
    taken, current = current, frame.f_locals.get("handle")
    if victim is not None and victim.cancelling() and not asked and current is not taken and "wakeup" in repr(current).lower():
        asked = True
        ask()
    return at_each_line

sys.settrace(lambda frame, *_: at_each_line if frame.f_code.co_name == "_run_once" else None)
try:
    DRIVE(work())
except KeyboardInterrupt:
    sys.settrace(None)
    print("asked twice" if asked else "asked once")
"""

RUN = """
try:
    run_loop(work())
except KeyboardInterrupt:
    print("interrupted")
"""


def outcome(program: str, timeout_s: float = 60.0) -> tuple[str, str]:
    """What it wrote to stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    return done.stdout.strip(), done.stderr


def test_a_second_one_loses_no_wake_up() -> None:
    assert outcome(WAKE_UP_LOST.replace("DRIVE", "run_loop")) == ("asked twice", "")


def test_asyncio_alone_loses_it() -> None:
    """Should this fail one day, `run_loop` is not needed any more."""
    with pytest.raises(subprocess.TimeoutExpired):
        outcome(WAKE_UP_LOST.replace("DRIVE", "asyncio.run"), timeout_s=3.0)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_first_lets_work_end_in_order(number: str) -> None:
    program = f"""
async def work():
    ask_after(0.1, number=signal.{number})
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.2)
        print("tidied", flush=True)

stop_at_any_signal()
"""
    assert outcome(program + RUN) == ("tidied\ninterrupted", "")


def test_the_second_cuts_the_tidying_short_and_all_else_that_is_under_way() -> None:
    program = """
async def stubborn():
    while not over:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

async def work():
    global over
    beside = asyncio.create_task(stubborn())
    ask_after(0.1, 0.2)
    try:
        await asyncio.sleep(600)
    finally:
        try:
            await asyncio.sleep(600)
        finally:
            over = True

over = False
try:
    run_loop(work())
except KeyboardInterrupt:
    print("interrupted")
"""
    said, complaints = outcome(program)
    assert set(said.splitlines()) == {"cancelled", "interrupted"}  # by the second, and perhaps by the closing loop
    assert complaints == ""


def test_many_at_once_while_it_closes_say_nothing() -> None:
    program = """
async def work():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.5)
    ask_after(0.1, 0.01, 0.01, 0.01)
    await asyncio.sleep(60)
"""
    assert outcome(program + RUN) == ("interrupted", "")


def test_code_that_never_comes_back_to_the_loop_can_be_left() -> None:
    program = """
async def work():
    ask_after(0.1, 1.5)
    while True:
        pass
"""
    assert outcome(program + RUN)[0] == "interrupted"


def test_one_that_the_work_swallows_is_not_forgotten() -> None:
    program = """
async def work():
    ask()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return 1
"""
    assert outcome(program + RUN) == ("interrupted", "")


def test_results_errors_and_cancellations_of_its_own_pass() -> None:
    program = """
async def give():
    return 7

async def fail():
    raise ValueError("no")

async def stop():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)

print(run_loop(give()))
for work in (fail, stop):
    try:
        run_loop(work())
    except (ValueError, asyncio.CancelledError) as error:
        print(type(error).__name__, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert outcome(program) == ("7\nValueError True\nCancelledError True", "")


def test_what_was_ignored_stays_ignored() -> None:
    program = """
async def work():
    ask()
    await asyncio.sleep(0.1)
    return "done"

signal.signal(signal.SIGINT, signal.SIG_IGN)
print(run_loop(work()))
"""
    assert outcome(program) == ("done", "")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_those_that_come_while_the_interpreter_ends_do_not_change_the_exit_code(number: str) -> None:
    program = f"""
from dsabench.signals import ignore_interrupts

stop_at_any_signal()
ignore_interrupts()
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        os.kill(parent, signal.{number})
    os._exit(0)
time.sleep(0.1)
sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, b"")

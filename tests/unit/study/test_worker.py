from __future__ import annotations

import subprocess
import sys

from dsabench.results.study_records import BootReservation, ReservedTrial
from dsabench.study.worker import Reservations
from factories import make_spec

HOLD = """
import sys
from pathlib import Path
from dsabench.study.worker import Reservations
from dsabench.results.study_records import BootReservation
bookings = Reservations(Path(sys.argv[1]))
with bookings.turn():
    held = bookings.hold(BootReservation.model_validate_json(sys.argv[2]))
    held.__enter__()
print("held", flush=True)
sys.stdin.read()
"""


def hold(folder, booking: BootReservation) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(folder), booking.model_dump_json()]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    return other


def test_a_booking_lasts_as_long_as_its_process(tmp_path):
    booking = BootReservation(
        machine="here", spec=make_spec(), phase="search", round=0, trials=(ReservedTrial(trial="a", occasion=1),)
    )
    bookings, other = Reservations(tmp_path), hold(tmp_path, booking)
    with bookings.turn():
        assert bookings.live() == (booking,)
        with bookings.hold(booking):
            assert bookings.live() == (booking,), "its own is not another's"
    other.kill()
    other.communicate()
    with bookings.turn():
        assert bookings.live() == ()
    assert not list(tmp_path.rglob("*.json"))
    bookings.remove()
    assert not list(tmp_path.iterdir())

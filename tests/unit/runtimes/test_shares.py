from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dsabench.errors import InputError
from dsabench.runtimes.shares import split_machine

FOUR = ("0", "1", "2", "5")


def test_shares_are_equal_and_apart():
    shares = split_machine(3, range(1000, 1011), FOUR, 1)
    assert {len(share.cores) for share in shares} == {3}
    assert len({core for share in shares for core in share.cores}) == 9
    assert [share.gpus for share in shares] == [("0",), ("1",), ("2",)]


def test_a_setting_of_two_gpus_takes_two_a_share():
    assert [share.gpus for share in split_machine(2, range(1000, 1004), FOUR, 2)] == [FOUR[:2], FOUR[2:]]


def test_without_gpus_only_cores_are_shared():
    assert [share.gpus for share in split_machine(2, range(1000, 1002), (), 0)] == [(), ()]


@pytest.mark.parametrize(
    ("lanes", "gpus", "each", "said"),
    [(3, FOUR, 2, "--lanes 2 at most"), (2, FOUR[:1], 2, "not one fits"), (9, (), 0, "each takes a core at least")],
)
def test_what_does_not_fit_is_refused(lanes, gpus, each, said):
    with pytest.raises(InputError, match=said):
        split_machine(lanes, range(1000, 1008), gpus, each)


def test_a_share_is_taken_by_a_process_and_what_it_starts():
    core = min(os.sched_getaffinity(0))
    said = (
        "import os\nfrom dsabench.runtimes.shares import Share\n"
        f"Share(({core},), ('1', '5')).take()\n"
        "print(os.sched_getaffinity(0), os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{{{core}}} 1,5"

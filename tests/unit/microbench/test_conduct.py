"""Workers are real processes, here under interpreters that a test made."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.errors import InputError, TrialFault
from dsabench.microbench.conduct import conduct
from dsabench.microbench.request import Limits, Request

CHECK = Request(
    "check",
    operators=("kv_*quantise",),
    shapes=("small-h8-b1-q96-kv96",),
    threads=1,
    limits=Limits(min_samples=6, max_samples=6, half_width=0.5),
)


def interpreter(tmp_path: Path, prelude: str) -> str:
    """A python that runs `prelude` first, as a foreign environment's sitecustomize would."""
    (tmp_path / "prelude.py").write_text(prelude)
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nshift 3\nexec {sys.executable} -c \'import sys; sys.path.insert(0, "{tmp_path}"); '
        "import prelude; from dsabench.microbench import worker; worker.main()'\n"
    )
    script.chmod(0o755)
    return str(script)


async def heard(request, python=None):
    return [said async for said in conduct(request, python)]


async def test_a_worker_says_device_candidates_and_verdicts_and_its_noise_stays_out(tmp_path):
    noisy = "from dsakernels.candidates import torch_cache\nplain = torch_cache.pack\n"
    noisy += "def pack(*a):\n    print('compiling')\n    return plain(*a)\ntorch_cache.pack = pack\n"
    said = await heard(CHECK, interpreter(tmp_path, noisy))
    assert said[0]["is"] == "device"
    assert {(s["candidate"], s["status"]) for s in said if s["is"] == "check"} == {
        ("torch_pack", "ok"),
        ("torch_pack_in_place", "ok"),
        ("torch_unpack", "ok"),
        ("torch_cast", "ok"),
    }


async def test_a_kernel_that_takes_its_process_down_does_not_take_the_others(tmp_path):
    deadly = "import os\nfrom dsakernels.candidates import torch_cache\n"
    deadly += "torch_cache.pack = lambda *a: os.abort()\n"
    # inputs of kv_dequantise are packed by the operator's own import and live
    said = await heard(CHECK, interpreter(tmp_path, deadly))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    assert verdicts.pop("torch_pack")["status"] == "crashed"
    assert {v["status"] for v in verdicts.values()} == {"ok"}
    assert len([s for s in said if s["is"] == "device"]) == 1


async def test_a_kernel_that_waits_for_ever_is_ended(tmp_path):
    waiting = "import time\nfrom dsakernels.candidates import torch_cache\n"
    waiting += "torch_cache.pack = lambda *a: time.sleep(600)\n"
    said = await heard(replace(CHECK, patience_s=3.0), interpreter(tmp_path, waiting))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    silent = verdicts.pop("torch_pack")
    assert silent["status"] == "crashed"
    assert silent["reason"].startswith("nothing was heard for 3 s")
    assert {v["status"] for v in verdicts.values()} == {"ok"}


async def test_after_an_illegal_access_another_process_goes_on(tmp_path):
    # what a fault of a GPU does: the kernel raises, and from then on everything in the process does
    lost = "from dsabench.microbench import check\nfrom dsakernels.candidates import torch_cache\n"
    lost += "def pack(*a):\n    raise RuntimeError('an illegal memory access')\n"
    lost += "torch_cache.pack = pack\n"
    lost += "def stop(device, verdicts):\n    raise check.ContextLostError(verdicts)\n"
    lost += "check.stop_if_lost = stop\n"
    said = await heard(CHECK, interpreter(tmp_path, lost))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    assert verdicts.pop("torch_pack")["reason"] == "RuntimeError: an illegal memory access"
    assert {v["status"] for v in verdicts.values()} == {"ok"}
    assert len(verdicts) == 3


async def test_mistakes_are_the_users(tmp_path):
    with pytest.raises(InputError, match="no operator 'nope': one of absorb, dense_prefill"):
        await heard(Request("list", ("nope",)))
    with pytest.raises(InputError, match="--kernel-python /no/such/python: No such file"):
        await heard(CHECK, "/no/such/python")
    with pytest.raises(TrialFault, match="No module named 'absent'"):
        await heard(CHECK, interpreter(tmp_path, "import absent"))

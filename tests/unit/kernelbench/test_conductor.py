"""Workers are real processes, here under interpreters that a test made."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dsabench.errors import InputError, TrialFault
from dsabench.kernelbench.conductor import run_bench
from dsabench.kernelbench.request import KernelBenchRequest, KernelPoint, TimingLimits

CHECK = KernelBenchRequest(
    "check",
    operators=("kv_*quantise",),
    shapes=("small-h8-b1-q96-kv96",),
    threads=1,
    limits=TimingLimits(min_samples=6, max_samples=6, half_width=0.5),
)


def interpreter(tmp_path: Path, prelude: str) -> str:
    """A python that runs `prelude` first, as a foreign environment's sitecustomize would."""
    (tmp_path / "prelude.py").write_text(prelude)
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nshift 3\nexec {sys.executable} -c \'import sys; sys.path.insert(0, "{tmp_path}"); '
        "import prelude; from dsabench.kernelbench import worker; worker.main()'\n"
    )
    script.chmod(0o755)
    return str(script)


async def heard(request, python=None):
    return [said async for said in run_bench(request, python)]


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


@pytest.mark.slow
async def test_a_kernel_that_takes_its_process_down_does_not_take_the_others(tmp_path):
    deadly = "import os\nfrom dsakernels.candidates import torch_cache\n"
    deadly += "torch_cache.pack = lambda *a: os.abort()\n"
    # inputs of kv_dequantise are packed by the operator's own import and live
    said = await heard(CHECK, interpreter(tmp_path, deadly))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    assert verdicts.pop("torch_pack")["status"] == "crashed"
    assert {v["status"] for v in verdicts.values()} == {"ok"}
    assert len([s for s in said if s["is"] == "device"]) == 1


@pytest.mark.slow
async def test_a_kernel_that_waits_for_ever_is_ended(tmp_path):
    waiting = "import time\nfrom dsakernels.candidates import torch_cache\n"
    waiting += "torch_cache.pack = lambda *a: time.sleep(600)\n"
    said = await heard(replace(CHECK, patience_s=6.0), interpreter(tmp_path, waiting))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    silent = verdicts.pop("torch_pack")
    assert silent["status"] == "crashed"
    assert silent["reason"].startswith("nothing was heard for 6 s")
    assert {v["status"] for v in verdicts.values()} == {"ok"}


async def test_after_an_illegal_access_another_process_goes_on(tmp_path):
    # what a fault of a GPU does: the kernel raises, and from then on everything in the process does
    lost = "from dsabench.kernelbench import correctness\nfrom dsakernels.candidates import torch_cache\n"
    lost += "def pack(*a):\n    raise RuntimeError('an illegal memory access')\n"
    lost += "torch_cache.pack = pack\n"
    lost += "def stop(device, verdicts):\n    raise correctness.ContextLostError(verdicts)\n"
    lost += "correctness.stop_if_lost = stop\n"
    said = await heard(CHECK, interpreter(tmp_path, lost))
    verdicts = {s["candidate"]: s for s in said if s["is"] == "check"}
    assert verdicts.pop("torch_pack")["reason"] == "RuntimeError: an illegal memory access"
    assert {v["status"] for v in verdicts.values()} == {"ok"}
    assert len(verdicts) == 3


async def test_mistakes_are_the_users(tmp_path):
    with pytest.raises(InputError, match="no operator 'nope': one of absorb, dense_prefill"):
        await heard(KernelBenchRequest("list", ("nope",)))
    with pytest.raises(InputError, match="--kernel-python /no/such/python: No such file"):
        await heard(CHECK, "/no/such/python")
    with pytest.raises(InputError, match="--kernel-python is empty"):
        await heard(CHECK, "")
    with pytest.raises(TrialFault, match=r"/python: the worker ended with 1: .*No module named 'absent'"):
        await heard(CHECK, interpreter(tmp_path, "import absent"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"shapes": ("small-*-kv97",)}, r"--shapes small-\*-kv97: fits no shape of kv_quantise; near it: small-h8-b1-q96-kv96"),
        ({"candidates": ("fa3",)}, "no candidate 'fa3' of kv_quantise: one of sglang_triton, torch_pack, torch_pack_in_place"),
        ({"dtypes": ("bf16",)}, "--dtypes bf16: what was asked for of kv_quantise is measured in fp8"),
    ],
)  # fmt: skip
async def test_what_fits_nothing_is_refused_and_not_left_out(asked, said):
    with pytest.raises(InputError, match=said):
        await heard(replace(CHECK, operators=("kv_quantise",), **asked))


async def test_a_pattern_has_to_fit_one_of_the_operators_and_names_have_to_meet():
    meeting = KernelBenchRequest(
        "check", ("kv_quantise", "sparse_decode"), shapes=("small-*-q96-kv96",), dtypes=("fp8",), threads=1
    )
    assert {s["operator"] for s in await heard(meeting) if s["is"] == "check"} == {"kv_quantise"}
    with pytest.raises(InputError, match="no candidate asked for has a shape asked for"):
        await heard(replace(meeting, candidates=("torch_masked_dense",)))


@pytest.mark.parametrize(
    "script",
    ["echo hello", "echo 5", "echo '{}'", """printf '{"is": "device"'""", """echo '{"is": "end", "points"'""",
     "head -c 6000000 /dev/zero | tr '\\0' x", "printf '\\377\\376\\n'", "kill -SEGV $$", "exec >&-; exit 4"],
)  # fmt: skip
async def test_an_interpreter_that_says_no_answer_is_named(tmp_path, script):
    liar = tmp_path / "liar"
    liar.write_text(f"#!/bin/sh\n{script}\n")
    liar.chmod(0o755)
    with pytest.raises(TrialFault, match=r"liar: the worker (ended with|was ended by signal 11)"):
        await heard(CHECK, str(liar))


async def test_an_interpreter_may_say_words_of_its_own_first(tmp_path):
    chatty = tmp_path / "chatty"
    chatty.write_text(f'#!/bin/sh\necho activating\necho 5\nexec {sys.executable} "$@"\n')
    chatty.chmod(0o755)
    assert [s for s in await heard(CHECK, str(chatty)) if s["is"] == "check"]


async def test_a_check_draws_on_every_seed_and_a_crash_ends_only_the_candidate(tmp_path):
    deadly = "import os\nfrom dsakernels.candidates import torch_cache\nplain, calls = torch_cache.pack, []\n"
    deadly += "def pack(*a):\n    calls.append(1)\n    return plain(*a) if len(calls) < 8 else os.abort()\n"
    deadly += "torch_cache.pack = pack\n"
    request = replace(CHECK, operators=("kv_quantise",), seed=5, seeds=3)
    said = [s for s in await heard(request, interpreter(tmp_path, deadly)) if s["is"] == "check"]
    ok = [(s["candidate"], s["seed"]) for s in said if s["status"] == "ok"]
    assert {seed for name, seed in ok if name == "torch_pack_in_place"} == {5, 6, 7}
    assert {seed for name, seed in ok if name == "torch_pack"} == {5}
    [crash] = [s for s in said if s["status"] == "crashed"]
    assert crash["candidate"] == "torch_pack"
    assert crash["reason"].startswith("the worker was ended by signal 6 (Aborted)")


async def test_a_budget_counts_the_measuring_and_the_first_shape_is_always_measured():
    bench = KernelBenchRequest("bench", ("kv_quantise",), budget_s=0.0, threads=1, limits=CHECK.limits)
    said = await heard(bench)
    assert [s["points"] for s in said if s["is"] == "begin"] == [6]
    assert len([s for s in said if s["is"] == "point"]) == 2
    assert [s["points"] for s in said if s["is"] == "left"] == [4]


async def test_what_is_known_where_it_runs_is_not_done_again():
    first = [KernelPoint(*(s[name] for name in KernelPoint._fields)) for s in await heard(CHECK) if s["is"] == "check"]

    async def known(device):
        assert device["arch"] == "cpu"
        return tuple(first[1:])

    said = [s async for s in run_bench(CHECK, None, known)]
    assert [(s["points"], s["known"]) for s in said if s["is"] == "asked"] == [(len(first), len(first) - 1)]
    assert [s["candidate"] for s in said if s["is"] == "check"] == [first[0].candidate]


@pytest.mark.slow
async def test_the_worker_of_a_killed_conductor_dies_though_its_kernel_waits_for_ever(tmp_path):
    waiting = "import time\nfrom dsakernels.candidates import torch_cache\n"
    waiting += "torch_cache.pack = lambda *a: time.sleep(600)\n"
    words = ("kernels", "check", "kv_quantise", "--shapes", "small-h8-b1-q96-kv96", "--device", "cpu")
    argv = [sys.executable, "-m", "dsabench", *words, "--kernel-python", interpreter(tmp_path, waiting)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while "points to do" not in process.stderr.readline():
            pass
        workers = psutil.Process(process.pid).children()
        process.kill()
    assert workers
    _, left = psutil.wait_procs(workers, timeout=60)
    assert all(worker.status() == psutil.STATUS_ZOMBIE for worker in left)  # dead, whether init has looked or not


@pytest.mark.slow
def test_the_worker_of_a_conductor_killed_while_it_imports_dies_too(tmp_path):
    importing = f"""
import pathlib, sys, time
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "torch":
            pathlib.Path({str(tmp_path / "importing")!r}).touch()
            time.sleep(600)
sys.meta_path.insert(0, Slow())
"""
    words = ("kernels", "check", "kv_quantise", "--device", "cpu")
    argv = [sys.executable, "-m", "dsabench", *words, "--kernel-python", interpreter(tmp_path, importing)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "importing").exists():
            assert process.poll() is None
            time.sleep(0.01)
        [worker] = psutil.Process(process.pid).children()
        process.kill()
    _, left = psutil.wait_procs([worker], timeout=60)
    try:
        assert all(one.status() == psutil.STATUS_ZOMBIE for one in left)
    finally:
        for one in left:
            one.kill()

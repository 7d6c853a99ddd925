from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dsabench.machine.server_gpus import (
    ForeignProcesses,
    busy_gpus,
    gpu_range,
    gpus_of_address,
    held_by,
    is_here,
    pids_on,
    visible_names,
)
from nvml_driver import driver, needs_compiler

SGLANG = {"device": "cuda", "tp_size": 4, "pp_size": 1, "dp_size": 1, "base_gpu_id": 0, "nnodes": 1}
"""As sglang tells it among its settings."""


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({}, range(4)),
        ({"base_gpu_id": 4}, range(4, 8)),
        ({"pp_size": 2}, range(8)),
        ({"dp_size": 2}, range(8)),
        ({"dp_size": 4, "enable_dp_attention": True}, range(4)),
        ({"dp_size": 2, "enable_dsa_prefill_context_parallel": True}, range(4)),
        ({"device": "cpu"}, None),
        ({"device": None}, None),
        ({"nnodes": 2}, None),
    ],
)
def test_places_by_the_servers_word(changes: dict[str, object], places: range | None) -> None:
    assert gpu_range(SGLANG | changes) == places


def test_settings_left_out_are_their_defaults() -> None:
    assert gpu_range({"device": "cuda"}) == range(1)
    assert gpu_range({}) is None


def test_places_among_the_visible() -> None:
    assert visible_names(range(2), {}) == ("0", "1")
    assert visible_names(range(1, 3), {"CUDA_VISIBLE_DEVICES": "4, GPU-a,6"}) == ("GPU-a", "6")
    assert visible_names(range(2), {"CUDA_VISIBLE_DEVICES": "4"}) == ()
    assert visible_names(None, {}) == ()


@needs_compiler
def test_a_server_of_which_nothing_is_known_has_those_that_hold_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = str(driver(tmp_path))
    assert busy_gpus(1, {}, library) == ("0",)  # GPU 1 holds what the driver needs for itself
    assert busy_gpus(2, {}, library) == ()
    assert busy_gpus(1, {"CUDA_VISIBLE_DEVICES": "1"}, library) == ()
    assert held_by([range(1)], library) == ("0",)
    assert held_by([range(1), None], library) == ()
    assert held_by([], library) == ()
    monkeypatch.setenv("USED_MIB", "400")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert busy_gpus(1, library=library) == ()


def test_without_a_driver_nobody_holds_any() -> None:
    assert busy_gpus(1, {}, "libnvidia-ml-absent.so") == ()


@needs_compiler
def test_an_address_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = str(driver(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    one = SGLANG | {"tp_size": 1}
    assert gpus_of_address("http://127.0.0.1:30000", one, library) == ("0",)
    assert gpus_of_address("http://192.0.2.1:30000", one, library) == ()  # TEST-NET-1: nobody's
    assert gpus_of_address("http://localhost:30000/v1", {"prefill": [], "decode": [one]}, library) == ("0",)
    assert gpus_of_address("http://localhost:30000", {"prefill": [one], "decode": [one]}, library) == ()
    assert gpus_of_address("http://localhost:30000", {"prefill": [{}], "decode": [one]}, library) == ()
    assert gpus_of_address("http://localhost:30000", {"version": "1"}, library) == ()
    assert gpus_of_address("http://localhost:30000", None, library) == ()


def test_own_addresses() -> None:
    assert is_here("http://[::1]:30000")
    assert is_here(f"http://{socket.gethostbyname(socket.gethostname())}:1")
    assert not is_here("http://no-such-host.invalid")


@needs_compiler
def test_processes_of_others_are_those_that_the_boot_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, pids = str(driver(tmp_path)), tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    pids.write_text("7\n")
    before = pids_on(library=library)
    assert before == {7}
    pids.write_text("7\n8\n9\n")
    # 9 came while the server started, and is not of it; a driver that counts otherwise knows none of the marked ones.
    assert ForeignProcesses.of_boot(("0",), before, frozenset({8, 80}), library).now(library) == {7, 9}
    seen = ForeignProcesses.of_boot(("0",), before, frozenset({80}), library)
    assert seen.now(library) == {7}
    pids.write_text("8\n9\n10\n")
    assert seen.now(library) == {10}
    # A driver that hides the server's own processes says nothing about others.
    pids.write_text("")
    assert ForeignProcesses.of_boot(("0",), frozenset(), frozenset({8}), library).now(library) is None

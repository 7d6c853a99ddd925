"""The causes of real failures. `*_h200_0.5.16.txt` are excerpts of logs written on an H200; the others' words come from
reports of users (sgl-project/sglang issues 1764, 3368, 4116, 4330, 5285, 7783; kvcache-ai/ktransformers issue 1969;
deepseek-ai/DeepGEMM pull request 173) and from the wheels' own messages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.errors import TrialFault
from dsabench.model.record import SERVER_LOST, FaultKind, Stage
from dsabench.sglang.diagnose import diagnose, refine

LOGS = Path(__file__).parent / "logs"

CAUSES: tuple[tuple[str, FaultKind, str], ...] = (
    ("kv_pool_h200_0.5.16", "kv_pool_out_of_memory", "ValueError: Loaded weights leave no GPU memory for the KV cache"),
    ("kv_pool_0.4.3", "kv_pool_out_of_memory", "RuntimeError: Not enough memory. Please try to increase"),
    ("prefill_h200_0.5.16", "prefill_out_of_memory", "CUDA out of memory. Tried to allocate 3.99 GiB"),
    ("weights", "weights_out_of_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB"),
    ("graph", "graph_out_of_memory", "Exception: Capture cuda graph failed: CUDA out of memory"),
    ("nccl", "nccl_timeout", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2"),
    ("watchdog", "watchdog", "Watchdog timeout (self.watchdog_timeout=300)"),
    ("nan", "nan", "Detected errors during sampling! NaN in the probability."),
    ("jit", "jit_compile", "NVCC compilation failed: nvcc fatal   : Unsupported gpu architecture 'sm_100f'"),
    ("arguments", "bad_arguments", "launch_server.py: error: unrecognized arguments: --enable-reasoning"),
    (
        "refused",
        "illegal_config",
        "AssertionError: DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
    ),
    ("dtype_fa3_h200_0.5.16", "illegal_config", "RuntimeError: query and key must have the same dtype"),
    ("dtype_flashmla_sparse_h200_0.5.16", "illegal_config", "RuntimeError: kv must have dtype torch::kBFloat16"),
    ("illegal_access_h200_0.5.16", "gpu_error", "splitkv_mla.cuh:754): an illegal memory access was encountered"),
    ("port", "port_in_use", "error while attempting to bind on address ('127.0.0.1', 30000): address already in use"),
    ("missing", "missing_file", "OSError: /models/none is not a local folder and is not a valid model identifier"),
)

SOUND = {"ready_h200_0.5.16", "served_flashmla_kv_bf16_h200_0.5.16"}


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


@pytest.mark.parametrize(("name", "kind", "line"), CAUSES, ids=[cause[0] for cause in CAUSES])
def test_the_cause_and_its_line(name: str, kind: FaultKind, line: str) -> None:
    cause = diagnose(log(name), booting=True)
    assert cause is not None
    assert (cause.kind, line in cause.message) == (kind, True), cause
    assert cause.message in log(name)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_a_boot_that_went_well_names_no_cause(name: str) -> None:
    """It says that a file is missing, that a default is taken, and that a limit could not be set."""
    assert diagnose(log(name), booting=True) is None


def test_every_log_is_used() -> None:
    assert {file.stem for file in LOGS.iterdir()} == {name for name, _, _ in CAUSES} | SOUND


BOOT = '[2026-11-20 10:00:00 TP0] Init torch distributed begin.\nTraceback (most recent call last):\n  File "x.py", line 1\n'


@pytest.mark.parametrize(
    ("end", "kind", "transient"),
    [
        (
            "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model=60.1",
            "out_of_memory",
            True,
        ),
        (
            "ValueError: Not enough host memory available. Requesting 512.00 GB but only have 211.00 GB free.",
            "out_of_memory",
            False,
        ),
        ("ImportError: DeepEP is not installed. Please install DeepEP package from", "missing_file", False),
        ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "missing_file", False),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_setting(end: str, kind: FaultKind, transient: bool) -> None:
    """The sentences are those of 0.5.16; only a neighbour's memory is worth a second boot."""
    fault = refine(TrialFault("exited", "exited with code 1", stage="boot"), BOOT + end + "\n", {})
    assert (fault.kind, fault.transient) == (kind, transient)
    assert fault.message.startswith(end[:60])


def test_memory_that_runs_out_while_serving_is_neither_weights_nor_pool() -> None:
    text = log("ready_h200_0.5.16") + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    cause = diagnose(text, booting=False)
    assert cause is not None
    assert cause.kind == "out_of_memory"


def test_a_python_error_is_a_refusal_only_while_booting() -> None:
    assert diagnose("ValueError: no", booting=False) is None


def test_a_killed_launcher_is_told_by_its_child() -> None:
    """The launcher kills itself: that looks like somebody from outside, and would be tried again."""
    killed = TrialFault("killed", "killed from outside by SIGKILL", stage="boot", log_tail="bye", transient=True)
    fault = refine(killed, log("graph"), {})
    assert (fault.kind, fault.transient, fault.stage) == ("graph_out_of_memory", False, "boot")
    assert "Possible solutions" in fault.log_tail
    assert len(fault.log_tail.splitlines()) < 40


@pytest.mark.parametrize("name", ["dtype_fa3_h200_0.5.16", "dtype_flashmla_sparse_h200_0.5.16"])
def test_a_kernel_that_refuses_the_dtype_is_not_tried_again(name: str) -> None:
    """The first tokens are the boot's own; what looks like a kill from outside is the launcher's."""
    killed = TrialFault("killed", "killed from outside by SIGKILL", stage="boot", log_tail="bye", transient=True)
    fault = refine(killed, log(name), {})
    assert (fault.kind, fault.transient) == ("illegal_config", False)
    assert "in forward_decode" in fault.log_tail
    served = diagnose(log(name), booting=False)
    assert served is not None
    assert served.kind == "exited", "while it serves it is a crash like any other"


@pytest.mark.parametrize("booting", [True, False])
def test_a_broken_kernel_is_named_at_any_time(booting: bool) -> None:
    """Also where the error is only seen later, at another call, by another rank's log line."""
    for line in (
        "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered",
        "[2026-11-22 13:13:26 TP1] HIP error: an illegal memory access was encountered",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ):
        cause = diagnose(log("ready_h200_0.5.16") + "\n" + line, booting=booting)
        assert cause is not None
        assert cause.kind == "gpu_error"


def test_a_kill_without_a_cause_stays_one() -> None:
    killed = TrialFault("killed", "killed from outside by SIGKILL", stage="load", transient=True)
    assert refine(killed, log("ready_h200_0.5.16"), {}) is killed


def test_what_is_no_death_is_left_alone() -> None:
    slow = TrialFault("boot_timeout", "not ready", stage="boot")
    assert refine(slow, log("graph"), {}) is slow


def test_secrets_of_the_environment_stay_out() -> None:
    exited = TrialFault("exited", "exited with code 1", stage="boot")
    fault = refine(exited, "FileNotFoundError: hf_abc/model", {"HF_TOKEN": "hf_abc"})
    assert "hf_abc" not in fault.message + fault.log_tail


def test_after_each_of_them_the_server_is_lost() -> None:
    refused: set[FaultKind] = {"illegal_config", "bad_arguments", "missing_file", "port_in_use"}
    assert {kind for _, kind, _ in CAUSES} - refused <= SERVER_LOST


READY = "[2026-06-17 17:51:20] The server is fired up and ready to roll!"
HIT = "[2026-06-17 17:51:53 PP1 TP0] Scheduler hit an exception: Traceback (most recent call last):"
SIGQUIT = "[2026-06-17 17:51:53] Received sigquit from a child process. It usually means the child failed."
CRASHES: tuple[tuple[FaultKind, str, tuple[str, ...]], ...] = (
    (
        "exited",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        (HIT, '  File "dsa_backend.py", line 2178, in _forward_trtllm', "    batch_size = page_table_1.shape[0]", "{}", "", SIGQUIT),
    ),
    ("exited", "AssertionError: Committed KV cache already freed", (HIT, '  File "a.py", line 1, in f', "{}", "", SIGQUIT)),
    (
        "exited",
        "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3189424",
        (HIT, '  File "scheduler.py", line 1300, in check_memory', "    raise ValueError(msg)", "{}", SIGQUIT),
    ),
    (
        "gpu_error",
        "RuntimeError: Error in function 'run' at runner.cu:305: Error occurred when running GEMM! (numBatches: 256)",
        ("flashinfer.jit: Failed to acquire lock for Bmm.cubin.", HIT, '  File "a.py", line 1, in f', "{}", SIGQUIT),
    ),
    (
        "gpu_error",
        ":0:rocdevice.cpp :3586: Callback: Queue aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation",
        ("{}", "Fatal Python error: Aborted", SIGQUIT),
    ),
    (
        "gpu_error",
        "Memory access fault by GPU node-5 on address 0x7ee24e9fe000. Reason: Page not present",
        ("{}", "Fatal Python error: Aborted", SIGQUIT),
    ),
    (
        "gpu_error",
        "CUDA_ERROR_INVALID_VALUE fmhaKernels.cuh 328",
        ("{}", "Assertion `probability tensor contains either `inf`, `nan` failed.", HIT, "torch.AcceleratorError: CUDA error: unspecified launch failure", SIGQUIT),
    ),
    ("exited", "Exception: Capture cuda graph failed: RuntimeError: Cannot call current_seed", (HIT, "    raise Exception(", "{}", "Possible solutions:", "1. set --mem-fraction-static", SIGQUIT)),
    ("exited", "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", (HIT, '  File "p.py", line 350, in NCCL_CHECK', "{}", SIGQUIT)),
    ("jit_compile", 'RuntimeError: Assertion error (compiler.hpp:187): (major > 12) and "NVCC version should be >= 12.3"', (HIT, "    deep_gemm.fp8_gemm_nt(lhs, rhs, out)", "{}", SIGQUIT)),
    (
        "exited",
        "RuntimeError: Rank 3 scheduler died during initialization (exit code: -9). A common cause is the OS OOM killer.",
        ("[2026-04-25 10:05:00] Rank 3 scheduler is dead.", "Traceback (most recent call last):", '  File "l.py", line 69, in <module>', "    run_server(server_args)", "{}"),
    ),
    (
        "missing_file",
        "ValueError: The checkpoint has model type `glm_moe_dsa` but Transformers does not recognize this architecture.",
        ("Traceback (most recent call last):", "    raise KeyError(key)", "KeyError: 'glm_moe_dsa'", "", "During handling of the above exception, another exception occurred:", "{}", "", "You can update Transformers with the command", SIGQUIT),
    ),
)  # fmt: skip
"""Words of users' reports (sglang issues 28659, 15734, 6888, 31864, 22714, 10195, 29453, 6033, 8974, 20287, 19408)."""


@pytest.mark.parametrize(("stage", "ready"), [("boot", False), ("boot", True), ("load", True)])
@pytest.mark.parametrize("stamp", ["", "[2026-02-26 15:56:59] ERROR: "])
@pytest.mark.parametrize(("kind", "message", "lines"), CRASHES, ids=[message[:40] for _, message, _ in CRASHES])
def test_a_crash_is_what_the_log_says_though_the_launcher_kills_itself(
    kind: FaultKind, message: str, lines: tuple[str, ...], stamp: str, *, stage: Stage, ready: bool
) -> None:
    """A server that was ready refused no setting, whichever stage the sweep is in."""
    text = "\n".join([READY] * ready + [stamp + line.format(message) for line in lines])
    killed = TrialFault("killed", "killed from outside by SIGKILL", stage=stage, log_tail="bye", transient=True)
    fault = refine(killed, text, {})
    wanted = "illegal_config" if not ready and kind == "exited" and message.startswith(("Value", "Assertion")) else kind
    assert (fault.kind, fault.message, fault.transient) == (wanted, message, False)


def test_the_traceback_of_a_request_is_no_death() -> None:
    """A healthy server that somebody kills has answered a request with an exception before."""
    text = f'{READY}\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad request'
    killed = TrialFault("killed", "killed from outside by SIGKILL", stage="load", transient=True)
    assert refine(killed, text, {}) is killed
    exited = TrialFault("exited", "exited with code 1", stage="load")
    assert refine(exited, text, {}).message == "ValueError: bad request"

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from dsabench.errors import InputError
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import resolve
from slowness import slowness
from unit.reference.server.serving import MHA, TABLES, command, environment, serving

MODEL = ("--model", "tiny")
PREFILL = ("--port", "0", "--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port")


def test_both_names_of_the_model_and_defaults():
    assert parse(["--model-path", "tiny"]) == parse(["--model", "tiny"])
    args = parse(["--model", "tiny"])
    assert (args.host, args.port, args.page_size) == ("127.0.0.1", 30000, 64)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ((), "required: --model-path"),
        (
            ("--model", "smal"),
            "'smal' is not allowed; did you mean small? (allowed: tiny, small, tiny-moe, small-moe, trained)",
        ),
        ((*MODEL, "--kv-cache-dtype", "fp8"), "did you mean fp8_e4m3? (allowed: auto, bf16, bfloat16, fp8_e4m3)"),
        ((*MODEL, "--dsa-decode-backend", "flashmla_auto"), "(allowed: flashmla_sparse, flashmla_kv, triton)"),
        ((*MODEL, "--kv-cache-dtyp", "bf16"), "--kv-cache-dtyp: no such flag; did you mean --kv-cache-dtype?"),
        ((*MODEL, "--dsa-prefill", "flashmla_kv"), "--dsa-prefill: no such flag"),
        ((*MODEL, "--port", "http"), "--port: 'http' is not allowed (allowed: an integer, 0 to 65535)"),
        ((*MODEL, "--port"), "--port: expected one argument"),
        ((*MODEL, "--max-running-requests", "0"), "at least 1"),
        ((*MODEL, "--chunked-prefill-size", "0"), "at least 1, or -1 for no limit"),
        ((*MODEL, "--page-size", "48"), "48 is not allowed (allowed: 16, 32, 64, 128, 256)"),
        ((*MODEL, "--dsa-prefill-backend", "flashmla_kv"), "needs --kv-cache-dtype fp8_e4m3"),
        (
            (*MODEL, "--dsa-decode-backend", "flashmla_kv", "--kv-cache-dtype", "bf16"),
            "needs --kv-cache-dtype fp8_e4m3",
        ),
        ((*MODEL, "--max-total-tokens", "63"), "less than a page"),
        ((*MODEL, "--context-length", "999999"), "at most 2048"),
        ((*MODEL, "stray"), "stray: no such flag"),
    ],
)
def test_wrong_flags_are_one_line(flags, complaint):
    with pytest.raises(InputError) as caught:
        parse(flags)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def refused(*flags: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        command(*flags), check=False, env=environment(**env), capture_output=True, text=True, timeout=30
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_the_program_says_one_line_and_exits_2():
    code, said = refused("--model", "tiny", "--dtype", "float16")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: ")
    assert "auto, bfloat16, float32" in said


@pytest.mark.parametrize("env", [{MHA: "long"}, {TABLES: "/nowhere"}])
def test_a_wrong_environment_exits_2_with_one_error_line(env):
    code, said = refused(*MODEL, "--port", "0", "--log-level", "error", **env)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith(f"error: {next(iter(env))}: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no CUDA device"):
        resolve(parse([*MODEL, "--device", "cuda"]), {})


def test_starting_up_imports_only_what_serving_needs():
    program = """
import sys
import dsabench.reference
assert not {"torch", "pydantic", "aiohttp"} & set(sys.modules)
import dsabench.reference.launch_server
import dsabench.reference.server.start
print(*sorted({"torch", "optuna", "pandas", "matplotlib", "typer", "scipy", "pyarrow", "rich"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, env=environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == "", "torch comes later, in the engine's thread"


def test_a_port_in_use_exits_3():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused(*MODEL, "--port", str(taken.getsockname()[1]))
    assert (code, said.count("\n")) == (3, 1)
    assert "address already in use" in said


def test_a_pool_that_memory_cannot_hold_ends_the_process():
    code, said = refused(*MODEL, "--port", "0", "--max-total-tokens", str(10**15))
    assert code == 1
    assert "allocate memory" in said
    assert "Scheduler hit an exception" in said


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_generation_ends_it_soon_and_cleanly(number):
    with serving() as server:
        body = b'{"text":"x","sampling_params":{"max_new_tokens":2000,"ignore_eos":true}}'
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while server.counters()["generated_tokens"] < 2:
                time.sleep(0.01)
            started = time.monotonic()
            server.process.send_signal(number)
            assert server.process.wait(60) == 0
            took_s = time.monotonic() - started
            assert took_s < 3.5 * slowness()  # 1 s of grace, and the interpreter's own end
            answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b'"type":"abort"' in answer or b'"type":"length"' in answer
    assert "Traceback" not in "".join(server.lines)


def test_a_signal_before_it_is_ready_ends_it_too():
    with serving(wait=False) as server:
        assert server.get("/health")[0] == 503
        assert server.get("/server_info")[0] == 503
        assert server.post("/generate", {"text": "x"})[0] == 503
        assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["aiohttp", "dsabench.reference.server.rank_pool"])
def test_a_signal_while_it_is_imported_ends_it_without_a_word(number, module):
    program = f"""
import os, runpy, sys
class Signalling:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Signalling())
sys.argv[1:] = ["--model", "tiny", "--port", "0"]
runpy.run_module("dsabench.reference.launch_server", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment(), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_signals_while_it_is_taken_apart_show_no_traceback():
    program = """
import asyncio, os, signal, sys
close = asyncio.SelectorEventLoop.close
def closing(loop):
    close(loop)  # which takes the loop's own handlers away
    os.kill(os.getpid(), signal.SIGINT)
asyncio.SelectorEventLoop.close = closing
from dsabench.reference import launch_server
sys.exit(launch_server.main(["--model", "tiny", "--port", "0", "--cpu-threads", "1"]))
"""
    with serving(argv=[sys.executable, "-c", program]) as server:
        assert server.stop() == 0
    assert "Traceback" not in "".join(server.lines)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_signal_at_the_moment_its_ranks_are_forked_ends_it_too(number, ranks):
    flags = ("--model", "tiny", "--port", "0", "--cpu-threads", "1", "--tp", ranks)
    with subprocess.Popen(command(*flags), env=environment(), stderr=subprocess.DEVNULL) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            while len(children.read_text().split()) < int(ranks):
                assert process.poll() is None
            born = [psutil.Process(int(pid)) for pid in children.read_text().split()]
            process.send_signal(number)
            assert process.wait(60) == 0
            assert psutil.wait_procs(born, 60.0)[1] == []
        finally:
            process.kill()


@pytest.mark.slow
def test_ranks_of_a_server_that_is_killed_while_they_boot_end_at_once():
    with subprocess.Popen(
        command("--model", "tiny", "--port", "0", "--tp", "2"), env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert "Listening" in process.stderr.readline()  # long before they have imported what they need
        born = psutil.Process(process.pid).children()
        for rank in born:
            while "libtorch" not in Path(f"/proc/{rank.pid}/maps").read_text():
                assert process.poll() is None  # it imports, so its first lines have run
            rank.suspend()  # one that does not run does not look at its pipe either
        process.kill()
        left = psutil.wait_procs(born, 60.0)[1]
        for rank in left:
            rank.kill()
        assert (len(born), left) == (2, [])


def test_a_bootstrap_port_in_use_ends_the_process_and_its_rank():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = refused(*MODEL, *PREFILL, port)
    assert code == 2
    assert f"--disaggregation-bootstrap-port {port}: " in said.splitlines()[-1]


FATAL = """
import sys
from dsabench.reference import launch_server
from dsabench.reference.engine import sampler
def choose(self, logits, requests):
    if requests[0].id == "fatal":
        raise RuntimeError("the accelerator fell off")
    return [1] * len(requests)
sampler.Sampler.choose = choose
sys.exit(launch_server.main(["--model", "tiny", "--port", "0", "--cpu-threads", "1"]))
"""


def seconds_to_end_of_a_fault() -> float:
    with serving(argv=[sys.executable, "-c", FATAL]) as server:
        assert server.generate("fine", new=2)["output_ids"] == [1, 1]
        started = time.monotonic()
        with pytest.raises((OSError, http.client.HTTPException)):
            server.post("/generate", {"text": "x", "rid": "fatal"})
        assert server.process.wait(60) == 1
        took_s = time.monotonic() - started
    said = "".join(server.lines)
    assert "Scheduler hit an exception" in said
    assert "the accelerator fell off" in said
    return took_s


def test_a_fault_of_the_engine_ends_the_process():
    seconds_to_end_of_a_fault()


@pytest.mark.timing
def test_a_fault_of_the_engine_ends_the_process_soon():
    assert seconds_to_end_of_a_fault() < 5 * slowness()

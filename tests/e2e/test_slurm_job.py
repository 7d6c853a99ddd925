"""The job that `emit --as slurm` writes: run by bash with a `srun` that runs its command here, and real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml

from dsabench.config.load import load_launch
from dsabench.emit.deployment import Wanted, deployment_of
from dsabench.emit.shell_scripts import slurm_files
from dsabench.runtimes.ports import is_free
from sglang_server import install_server

pytestmark = pytest.mark.slow

SRUN = """#!/bin/bash
out=/dev/null
while [[ $1 == --* ]]; do [[ $1 == --output=* ]] && out=${1#--output=}; shift; done
exec "$@" >"$out" 2>&1
"""


@pytest.fixture(params=[{}, {"bind": "127.0.0.1"}], ids=["open", "loopback"])
def job(request, tmp_path):
    """Prefill on two nodes, decode and the router on others; each node is an address of this machine, and none is 127.0.0.1."""
    first = next(port for port in range(41000, 60000, 2000) if all(is_free(port + step) for step in (0, 300, 600)))
    ports = {
        "prefill": {"port": first},
        "decode": {"port": first + 300},
        "router": {"port": first + 600} | request.param,
    }
    roles = [{"role": "prefill", "nodes": 2, "knobs": {"tp_size": 16}}, {"role": "decode", "knobs": {"tp_size": 8}}]
    runtime = {
        "kind": "sglang",
        "model": "deepseek-ai/DeepSeek-V3.2",
        "hardware": "h200",
        "topology": {"roles": roles, "router": {"policy": "round_robin"}},
        "launch": {
            "python": sys.executable,
            "sites": ports,
            "env": {"PYTHONPATH": str(install_server(tmp_path / "site")), "STAND_IN_BOOT_S": "1"},
        },
    }
    (tmp_path / "pair.yaml").write_text(yaml.safe_dump({"name": "pair", "runtime": runtime}))
    config = load_launch(tmp_path / "pair.yaml")
    files = slurm_files(deployment_of(Wanted(config, config.spec({}), "0.5.16", "pair", ("why",)), "slurm"))
    (tmp_path / "launch.sbatch").write_text(files["launch.sbatch"])
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\nprintf '127.0.0.2\\n127.0.0.3\\n127.0.0.4\\n'\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"SLURM_JOB_NODELIST": "here", "SLURM_JOB_NAME": "pair", "SLURM_JOB_ID": "1"}
    with subprocess.Popen(
        ["bash", "launch.sbatch"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        yield process, f"{request.param.get('bind', '127.0.0.2')}:{first + 600}", tmp_path
        for one in [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []:
            one.kill()
        process.kill()


def said_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(f"ended with {process.wait()} before it said {word!r}")


def asked(address: str) -> str:
    body = json.dumps({"input_ids": [5, 6, 7, 8], "sampling_params": {"max_new_tokens": 4}, "stream": True})
    request = urllib.request.Request(f"http://{address}/generate", body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def test_it_serves_when_it_says_so_and_a_server_that_ends_takes_all_along(job) -> None:
    process, address, folder = job
    assert said_until(process, "requests go to").strip() == f"requests go to http://{address}"
    assert '"completion_tokens": 4' in asked(address)
    children = psutil.Process(process.pid).children(recursive=True)
    decode = next(one for one in children if "decode" in one.cmdline())
    decode.send_signal(signal.SIGKILL)
    assert "a process ended with status 137" in said_until(process, "ended with")
    assert process.wait(30) == 137
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    assert {path.name for path in folder.glob("*.log")} == {
        f"pair-1-{n}.log" for n in ("prefill-0", "prefill-0-node1", "decode-0", "router")
    }


def test_cancelled_while_it_waits_nothing_is_left(job) -> None:
    process, _, folder = job
    deadline_s = time.monotonic() + 60
    while not Path(folder / "pair-1-decode-0.log").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    assert process.wait(30) == 143
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []

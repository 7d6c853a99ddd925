"""What is found on a machine: this one, and ones of other sizes."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from dsabench.doctor.run import check_ports
from dsabench.errors import InputError
from dsabench.machine.checks import (
    ModelWeights,
    ShellLimits,
    check_device,
    check_disk,
    check_gpus,
    check_limits,
    check_shared_memory,
    read_limits,
)
from dsabench.model.environment import Gpu, Hardware
from dsabench.runtimes.command import Launch
from dsabench.sglang.examine import _cuda, check_sglang

PLAIN = Hardware(cpu="cpu", cpu_cores=2, memory_mib=1024)


def with_gpus(*names: str) -> Hardware:
    gpus = tuple(Gpu(name=name, memory_mib=143_771) for name in names)
    return PLAIN.model_copy(update={"gpus": gpus, "driver": "580.65", "cuda": "13.0"})


def test_gpus_are_named_with_their_driver() -> None:
    gpu, driver = check_gpus(with_gpus("NVIDIA H200", "NVIDIA H200"), needed=True)
    assert (gpu.verdict, gpu.line) == ("ok", "2 × NVIDIA H200, 140 GiB each")
    assert driver.line == "580.65, serves CUDA up to 13.0"


def test_gpus_of_two_kinds_are_a_warning() -> None:
    gpu = check_gpus(with_gpus("NVIDIA H200", "NVIDIA B200"), needed=True)[0]
    assert gpu.verdict == "warning"
    assert "CUDA_VISIBLE_DEVICES" in (gpu.fix or "")


@pytest.mark.parametrize(("needed", "verdict"), [(True, "problem"), (False, "warning")])
def test_no_gpu_matters_where_one_is_needed(needed, verdict, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert check_gpus(PLAIN, needed=needed)[0].verdict == verdict


def test_hidden_gpus_are_a_problem_of_the_variable(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = check_gpus(PLAIN, needed=False)[0]
    assert (found.verdict, found.fix) == ("problem", "unset CUDA_VISIBLE_DEVICES")


def test_other_accelerators_are_known_by_their_device(tmp_path) -> None:
    assert check_device(tmp_path, "rocm-smi").verdict == "ok"
    assert check_device(tmp_path / "kfd", "rocm-smi").verdict == "problem"


@pytest.mark.parametrize(
    ("soft", "hard", "verdict", "fix"),
    [
        (None, None, "ok", None),
        (65_536, 65_536, "ok", None),
        (8_192, None, "warning", "ulimit -n 65536"),
        (1_024, 1_048_576, "problem", "ulimit -n 65536"),
        (1_024, 4_096, "problem", "limits.d"),
    ],
)
def test_open_files(soft, hard, verdict, fix) -> None:
    found = check_limits(ShellLimits((soft, hard), (None, None)))[0]
    assert found.verdict == verdict
    assert found.fix is None if fix is None else fix in (found.fix or "")


@pytest.mark.parametrize(
    ("soft", "hard", "verdict", "fix"),
    [
        (None, None, "ok", None),
        (65_536, None, "warning", "ulimit -l unlimited"),
        (65_536, 65_536, "warning", "limits.d"),
    ],
)
def test_locked_memory(soft, hard, verdict, fix) -> None:
    found = check_limits(ShellLimits((None, None), (soft, hard)))[1]
    assert found.verdict == verdict
    assert found.fix is None if fix is None else fix in (found.fix or "")


def test_the_limits_are_this_processs_own() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, 1000) if soft != resource.RLIM_INFINITY else 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        assert read_limits().open_files[0] == lower
        assert check_limits(read_limits())[0].verdict == "problem"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_shared_memory_that_is_missing(tmp_path) -> None:
    assert check_shared_memory(1, tmp_path).verdict == "ok"
    found = check_shared_memory(8, tmp_path / "none")
    assert found.verdict == "problem"
    assert "mount" in (found.fix or "")


async def test_ports() -> None:
    assert (await check_ports(None)).verdict == "ok"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = await check_ports(port)
        assert (found.verdict, found.fix) == ("problem", f"ss -ltnp 'sport = :{port}'")
    assert (await check_ports(port)).verdict == "ok"


def test_a_model_takes_space_until_it_is_here(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    weights = ModelWeights("deepseek-ai/DeepSeek-V3.2", 1e9)
    space, model = check_disk(tmp_path / "results", weights)
    assert (space.check, space.verdict) == ("disk", "ok")
    assert (model.check, model.verdict) == ("model", "problem")
    assert "HF_HOME" in (model.fix or "")
    snapshot = tmp_path / "hub" / "models--deepseek-ai--DeepSeek-V3.2" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert check_disk(tmp_path, weights)[1].verdict == "ok"


def test_a_model_in_a_folder_and_one_that_is_nowhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert check_disk(tmp_path, ModelWeights(str(tmp_path), None))[1].verdict == "ok"
    assert check_disk(tmp_path, ModelWeights("/no/such/model", None))[1].verdict == "warning"


def test_torch_of_a_newer_cuda_than_the_driver() -> None:
    assert [found.verdict for found in _cuda("12.9", "12.4")] == ["ok"]
    found = _cuda("13.0", "12.8")[0]
    assert (found.verdict, found.fix) == ("problem", "sudo apt-get install cuda-drivers-580")
    assert _cuda(None, "12.8") == _cuda("13.0", None) == []


def site_with(folder: Path, sglang: str, **packages: str) -> None:
    """An installation as `pip` leaves it: metadata, and torch's version.py."""
    requires = "Requires-Dist: torch==2.11.0\nRequires-Dist: sglang-kernel==0.4.5\nRequires-Dist: numpy\n"
    for name, version in {"sglang": sglang, **packages}.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        extra = requires if name == "sglang" else ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{extra}"
        )
    torch = folder / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise SystemExit('nobody imports torch')")
    (torch / "version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\n")


def interpreter(folder: Path, site: Path) -> Path:
    """A Python that sees this installation."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {os.sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script


async def test_an_installation_that_fits(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    site_with(site, "0.5.16", torch="2.11.0+cu130", sglang_kernel="0.4.5")
    found = await check_sglang(Launch(python=interpreter(tmp_path, site)), "13.0")
    assert {one.check: one.verdict for one in found} == dict.fromkeys(
        ("sglang", "torch", "sglang-kernel", "cuda"), "ok"
    )


async def test_an_installation_that_does_not(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    site_with(site, "0.5.16", torch="2.9.1")
    python = interpreter(tmp_path, site)
    found = {one.check: one for one in await check_sglang(Launch(python=python), "12.8")}
    assert found["sglang"].verdict == "ok"
    assert found["torch"].line == "2.9.1; this sglang asks for 2.11.0"
    assert found["torch"].fix == f"{python} -m pip install torch==2.11.0"
    assert found["sglang-kernel"].line == "not installed; this sglang asks for 0.4.5"
    assert found["cuda"].verdict == "problem"


@pytest.mark.parametrize(("version", "verdict"), [("0.5.8", "problem"), ("0.5.16", "ok"), ("0.9.1", "warning")])
async def test_versions_that_are_too_old_or_unread(tmp_path, version, verdict) -> None:
    site = tmp_path / "site"
    site.mkdir()
    site_with(site, version)
    found = await check_sglang(Launch(python=interpreter(tmp_path, site)), None)
    assert (found[0].check, found[0].verdict) == ("sglang", verdict)


async def test_the_line_that_mends_it_has_no_variable_of_the_launch(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    launch = Launch(python=interpreter(tmp_path, site), command_prefix=("nice",), env={"HF_TOKEN": "hf_secret"})
    (finding,) = await check_sglang(launch, None)
    assert (finding.fix or "").startswith(f"nice {launch.interpreter} -m pip install sglang==")


async def test_an_interpreter_without_sglang_and_one_that_is_none(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    python = interpreter(tmp_path, site)
    found = await check_sglang(Launch(python=python), None)
    assert [one.verdict for one in found] == ["problem"]
    assert (found[0].fix or "").startswith(f"{python} -m pip install sglang==")
    with pytest.raises(InputError, match="cannot run"):
        await check_sglang(Launch(python=tmp_path / "none"), None)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no library found >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="no library found"):
        await check_sglang(Launch(python=broken), None)

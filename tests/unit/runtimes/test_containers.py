"""Containers against a stand-in named docker, a real program on the PATH: no engine is needed, and none is tested."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dsabench.config.specs import ContainerConfig
from dsabench.errors import TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import engine_of, removed_after, with_id_file
from dsabench.runtimes.protocol import Place
from dsabench.sglang.runtime import SglangRuntime
from sglang_server import install_server

_DOCKER = f'''#!{sys.executable} -S
"""run: write the id, then run what comes after the image in a session of its own, as a daemon would. rm: end it."""
import os, signal, subprocess, sys, pathlib
state = pathlib.Path(os.environ["STAND_IN_DOCKER"])
words = sys.argv[1:]
with open(state / "calls", "a") as file:
    file.write(" ".join(words[:4]) + "\\n")
if words[0] == "rm":
    if os.environ.get("STAND_IN_RM_FAILS"):
        sys.exit("Error response from daemon: container is stuck")
    pid = int((state / words[2]).read_text())
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        sys.exit("Error: No such container: " + words[2])
    sys.exit(0)
image = words.index("an/image")
env = dict(os.environ)
for at, word in enumerate(words[:image]):
    if word == "-e":
        name, _, value = words[at + 1].partition("=")
        env[name] = value
child = subprocess.Popen(words[image + 1:], env=env, start_new_session=True)
if "--cidfile" in words:
    (state / "c0ffee").write_text(str(child.pid))
    with open(words[words.index("--cidfile") + 1], "x") as file:
        file.write("c0ffee")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
child.wait()
'''


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "docker"
    (state / "bin").mkdir(parents=True)
    program = state / "bin" / "docker"
    program.write_text(_DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{state / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_DOCKER", str(state))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return state


def calls(docker: Path) -> list[str]:
    return (docker / "calls").read_text().splitlines()


def test_only_a_run_of_an_engine_here_is_one() -> None:
    assert engine_of(("docker", "run", "image")) == "docker"
    assert engine_of(("srun", "docker", "run", "image")) is None
    assert engine_of(("docker", "ps")) is None
    assert with_id_file(("podman", "run", "--rm", "i"), Path("/f")) == ("podman", "run", "--cidfile", "/f", "--rm", "i")


@pytest.mark.usefixtures("workshop")
async def test_a_server_in_a_container_is_removed_by_its_id(tmp_path: Path, docker: Path) -> None:
    site = install_server(tmp_path / "site")
    container = ContainerConfig(image="an/image")
    launch = Launch(python=Path(sys.executable), env={"PYTHONPATH": str(site)}, container=container)
    spec = RuntimeSpec(kind="sglang", model="v3.2", hardware="h200", knobs={"tp_size": 8})
    place = Place(folder=tmp_path / "boot", ready_timeout_s=30, stop_timeout_s=3)
    async with SglangRuntime(launch).serve(spec, place) as server:
        assert await server.info()
        inside = int((docker / "c0ffee").read_text())
    assert calls(docker)[-1] == "rm -f c0ffee"
    assert not Path(f"/proc/{inside}").exists()


async def test_a_container_that_cannot_be_removed_is_told(
    tmp_path: Path, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RM_FAILS", "1")
    with pytest.raises(TrialFault, match="container c0ffee is still there: Error response from daemon") as caught:
        async with removed_after("docker", tmp_path / "id"):
            (tmp_path / "id").write_text("c0ffee")
    assert caught.value.kind == "not_gone"


async def test_one_that_is_gone_already_or_never_came_is_fine(tmp_path: Path, docker: Path) -> None:
    async with removed_after("docker", tmp_path / "id"):
        pass
    assert not (docker / "calls").exists()
    (docker / "c0ffee").write_text("99999999")
    async with removed_after("docker", tmp_path / "id"):
        (tmp_path / "id").write_text("c0ffee")
    assert calls(docker) == ["rm -f c0ffee"]

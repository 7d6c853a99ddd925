"""Lines that OpenSSH 9.2, Slurm 22.05, Docker 20.10 and podman 4.3 wrote."""

from __future__ import annotations

import pytest

from dsabench.config.specs import ContainerConfig
from dsabench.runtimes.clients import complaint, fault_of_client, last_words
from dsabench.runtimes.command import Launch, enclose
from dsabench.runtimes.faults import Ending
from dsabench.sglang.images import wrap_sglang

SAID = [
    (255, "unreachable", "ssh: connect to host 127.0.0.1 port 2299: Connection refused"),
    (255, "unreachable", "ssh: Could not resolve hostname nowhere.invalid: Name or service not known"),
    (255, "unreachable", "Connection timed out during banner exchange"),
    (255, "unreachable", "Connection to 127.0.0.1 closed by remote host."),
    (255, "illegal_config", "Host key verification failed."),
    (255, "illegal_config", "root@127.0.0.1: Permission denied (publickey)."),
    (255, "illegal_config", "command-line: line 0: Bad configuration option: nonsense"),
    (1, "illegal_config", "srun: error: invalid partition specified: nope"),
    (1, "illegal_config", "srun: error: Unable to allocate resources: Invalid node name specified"),
    (1, "illegal_config", "srun: fatal: Could not establish a configuration source"),
    (1, "illegal_config", "srun: unrecognized option '--nonsense'"),
    (2, "missing_file", "slurmstepd-vm: error: execve(): /opt/no/python: No such file or directory"),
    (143, "killed", "slurmstepd-vm: error: *** STEP 27.0 ON vm CANCELLED AT 2026-11-22T10:53:19 ***"),
    (125, "missing_file", "Unable to find image 'no/such:image' locally"),
    (125, "illegal_config", "unknown flag: --nonsense"),
    (125, "illegal_config", 'docker: Error response from daemon: could not select device driver "" with capabilities'),
    (125, "unreachable", "docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"),
    (
        125,
        "missing_file",
        'Error: short-name "nosuch" did not resolve to an alias and no unqualified-search registries',
    ),
    (126, "illegal_config", "Error: setting up CDI devices: unresolvable CDI devices amd.com/gpu=all"),
    (127, "missing_file", 'Error: runc: unable to start container process: exec: "/opt/no/python": no such file'),
    (125, "illegal_config", "dsabench: node-7 is another machine: nothing here can reach its loopback"),
]


@pytest.mark.parametrize(("code", "kind", "line"), SAID)
def test_what_a_client_cannot_do(code: int, kind: str, line: str) -> None:
    text = f"Trying to begin\n{line}\n\nRun 'docker run --help' for more information\n"
    assert complaint(text, code) == (kind, line)
    fault = fault_of_client(Ending(code=code), text, "boot")
    assert (fault.kind, fault.message, fault.log_tail) == (kind, line, text)
    assert fault.transient is (kind in {"unreachable", "killed"})


def test_the_servers_own_words_are_not_the_clients() -> None:
    text = (
        "Error: the model is odd\nConnection to the store timed out\nsrun: error: vm: task 0: Exited with exit code 1\n"
    )
    assert complaint(text, 1) is None
    assert fault_of_client(Ending(code=1), text, "boot").message == (
        "exited with code 1: Connection to the store timed out"
    )
    assert last_words(text, 1) == "Connection to the store timed out"
    assert last_words("", 1) == ""


@pytest.mark.parametrize(
    ("prefix", "times"),
    [
        (("ssh", "-F", "/home/me/ssh", "-o", "Port=2", "node"), 1),
        (("/usr/bin/ssh", "-tt", "-p", "22", "ssh"), 1),
        (("env", "-i", "ssh", "jump", "ssh", "-T", "node"), 2),
        (("srun", "--nodelist=ssh-1"), 0),
    ],
)
def test_each_ssh_is_a_shell_more(prefix: tuple[str, ...], times: int) -> None:
    words, _ = enclose(("two words",), {}, Launch(command_prefix=prefix))
    expected = ("two words", "'two words'", "''\"'\"'two words'\"'\"''")[times]
    assert words == (*prefix, expected)


def test_only_what_runs_has_a_lifeline() -> None:
    container = ContainerConfig(image="an/image")
    words, _ = wrap_sglang(("true",), {}, Launch(container=container))
    assert "-i" not in words
    assert words[-2:] == ("an/image", "true")


def test_podman_is_told_the_registry() -> None:
    words, _ = wrap_sglang(("true",), {}, Launch(container=ContainerConfig(engine="podman")))
    assert words[-2] == "docker.io/lmsysorg/sglang:latest"
    words, _ = wrap_sglang(("true",), {}, Launch(container=ContainerConfig(engine="docker")))
    assert words[-2] == "lmsysorg/sglang:latest"

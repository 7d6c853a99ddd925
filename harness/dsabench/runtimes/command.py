"""The command inside what starts it: an interpreter, a container, a prefix such as srun or ssh, and a keeper on the far machine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePath
from typing import Literal

from dsabench.config.specs import ContainerConfig, LaunchConfig, RuntimeConfig
from dsabench.errors import InputError
from dsabench.model.hardware import Platform
from dsabench.model.secrets import looks_secret
from dsabench.model.topology import RoleHosts
from dsabench.runtimes.keeper import machine
from dsabench.runtimes.orphans import MARK

Entry = Literal["launch_server", "serve"]

_KEEPER = Path(__file__).with_name("keeper.py")
Command = tuple[tuple[str, ...], dict[str, str]]
"""Words, and the variables to set around them."""
_DEVICES = {
    "cuda": ("--gpus", "all"),
    "rocm": (*("--device", "/dev/kfd", "--device", "/dev/dri"), *("--group-add", "video")),
    "npu": (
        *(word for index in range(8) for word in ("--device", f"/dev/davinci{index}")),
        *("--device", "/dev/davinci_manager", "--device", "/dev/devmm_svm", "--device", "/dev/hisi_hdc"),
    ),
}
_SSH_WITH_VALUE = re.compile(r"-\w*[BbcDEeFIiJLlmOopQRSWw]")
"""Options of ssh whose value is the next word."""
PLACEHOLDER = re.compile(r"\$(?:[A-Za-z_]\w*|\{\w+\})")
"""What a config leaves to the shell."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How the config says to start a runtime, or where the server is that somebody else started."""

    python: Path | None = None
    """Interpreter of the runtime; None takes the one that runs dsabench, or for sglang `python3` from the PATH."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for the runtime's processes; those of the spec win over them. May hold secrets."""
    base_url: str | None = None
    """Only for `external`."""
    command_prefix: tuple[str, ...] = ()
    """Words before the command: `srun …`, `ssh HOST`."""
    container: ContainerConfig | None = None
    entry: Entry = "launch_server"
    """`python -m sglang.launch_server`, or `sglang serve`."""
    sites: Mapping[str, RoleHosts] = field(default_factory=dict)
    """Role, or `router` → where its instances stand."""
    lifeline: Lifeline | None = None
    """For commands that are run and not only written: what ends the far side of a prefix or container."""
    hands_stdin_on: bool = False
    """Whether a container gets the stdin of what is run without a lifeline."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether a client (`ssh`, `srun`, `docker run`) starts the server, which is then no child of this process."""
        return bool(self.command_prefix) or self.container is not None

    @property
    def first_host(self) -> str | None:
        """The machine that is asked what is installed; None where no site names one."""
        return next((host for site in self.sites.values() for host in site.hosts[:1]), None)

    @property
    def interpreter(self) -> str:
        """The word that starts the runtime's Python; a path with folders is made absolute, links kept."""
        given = self.python
        if given is None:
            return "python3"
        return str(given.expanduser().absolute()) if not self.is_elsewhere and len(given.parts) > 1 else str(given)


def launch_of(config: RuntimeConfig) -> Launch:
    """How and where the config says to start it."""
    return launch_as(config.launch, config.base_url)


def launch_as(how: LaunchConfig, base_url: str | None = None) -> Launch:
    """The same from its two parts."""
    return Launch(
        python=None if how.python is None else Path(how.python),
        env=how.env,
        base_url=base_url,
        command_prefix=how.command_prefix,
        container=how.container,
        entry=how.entry,
        sites=how.sites,
    )


@dataclass(frozen=True, slots=True)
class Lifeline:
    """What the far side is told."""

    boot: str
    """The uuid that its processes carry in their environment, there too."""
    stop_timeout_s: float = 20.0
    """From TERM to KILL."""
    loopback: bool = False
    """The server is looked for at loopback: on another machine it could not be reached."""

    def around(self, interpreter: str, words: Sequence[str]) -> tuple[str, ...]:
        """The words behind a keeper."""
        job = {
            "argv": list(words),
            "env": {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", MARK: self.boot},  # no client brings them along
            "stop_timeout_s": self.stop_timeout_s,
            "cwd": ".",
            "log": None,
            "cores": (),
            "keep_fds": (),
            "term_all": False,
            "lifeline": False,
            "machine": machine() if self.loopback else None,
            "elsewhere": "nothing here can reach its loopback; name its address in runtime.launch.sites.server.hosts",
        }
        return (interpreter, "-I", "-S", "-c", _program(), json.dumps(job).replace("!", "\\u0021"))


@cache
def _program() -> str:
    return one_line(_KEEPER.read_text(encoding="utf-8"))


def one_line(program: str) -> str:
    """The same program for `python -c`; without line breaks and `!`, which a remote csh takes in no quotes."""
    return f"exec({program!r})".replace("!", "\\x21")


def enclose(
    argv: Sequence[str],
    env: Mapping[str, str],
    launch: Launch,
    host: str | None = None,
    *,
    image: str | None = None,
    platform: Platform = "cuda",
) -> Command:
    """The words with container and prefix around them. Variables go where the process sees them.

    `image` is taken where the container names none; `platform` decides which devices it is given.

    `{host}` in the prefix becomes the machine of the process, or loopback where none is named.

    Raises:
        InputError: a container without an image, and none is known for the hardware.

    """
    words, outside = tuple(argv), {**launch.env, **env}
    if launch.lifeline is not None and launch.is_elsewhere:
        words = launch.lifeline.around(launch.interpreter, words)
    if launch.container is not None:
        words, outside = _contained(words, outside, launch, image, platform)
    if launch.command_prefix:
        if outside:
            words, outside = ("env", *(f"{name}={value}" for name, value in outside.items()), *words), {}
        for _ in range(_remote_shells(launch.command_prefix)):
            words = tuple(shlex.quote(word) for word in words)  # each ssh hands one text to the remote shell
        prefix = tuple(word.replace("{host}", host or "127.0.0.1") for word in launch.command_prefix)
        words = (*prefix, *words)
    return words, outside


def _remote_shells(prefix: Sequence[str]) -> int:
    """How many ssh stand in it, one behind the other: `ssh JUMP ssh HOST`."""
    words, count = list(prefix), 0
    while (at := next((at for at, word in enumerate(words) if PurePath(word).name == "ssh"), None)) is not None:
        count, words = count + 1, words[at + 1 :]
        while words and words[0].startswith("-"):
            words = words[2 if _SSH_WITH_VALUE.fullmatch(words[0]) else 1 :]
        words = words[1:]  # the host, which may be named ssh
    return count


def _contained(
    words: tuple[str, ...], env: Mapping[str, str], launch: Launch, known: str | None, platform: Platform
) -> Command:
    container = launch.container
    assert container is not None
    if known is not None and container.engine == "podman":
        known = f"docker.io/{known}"  # it knows no registry by itself
    image = container.image or known
    if image is None:
        raise InputError("runtime.launch.container.image: no image is known for this hardware; name one")
    mounts = [
        word for mount in container.mounts for word in ("--mount" if container.engine == "enroot" else "-v", mount)
    ]
    # Handed over by name, a secret stays off the command line; behind a prefix it would not arrive that way.
    hidden = {} if launch.command_prefix else {name: value for name, value in env.items() if looks_secret(name)}
    texts = [name if name in hidden else f"{name}={value}" for name, value in env.items()]
    variables = [word for text in texts for word in ("-e", text)]
    if container.engine == "enroot":
        return ("enroot", "start", "--rw", *mounts, *variables, image, *words), hidden
    return (
        *_engine(container, platform, attached=launch.lifeline is not None or launch.hands_stdin_on),
        *mounts,
        *variables,
        image,
        *words,
    ), hidden


def _engine(container: ContainerConfig, platform: Platform, *, attached: bool) -> tuple[str, ...]:
    devices = _DEVICES[platform]
    if container.engine == "podman" and devices[0] == "--gpus":
        devices = ("--device", "nvidia.com/gpu=all")
    shared = ("--shm-size", container.shm) if container.shm else ("--ipc", "host")
    stdin = ("-i",) if attached else ()
    return (container.engine, "run", *stdin, "--rm", "--network", "host", *shared, *devices)


def in_shell(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """One command to paste. Placeholders stay open to the shell; a secret is taken from the shell's own variable."""
    settings = [f"{name}={_quoted(_public(name, value))}" for name, value in env.items()]
    return " ".join([*settings, *_lines(argv)])


def public_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with the values of secrets replaced by `$NAME`."""
    return {name: _public(name, value) for name, value in env.items()}


def public_words(argv: Sequence[str]) -> tuple[str, ...]:
    """The same for `NAME=VALUE` words of containers and prefixes."""
    return tuple(_public_word(word) for word in argv)


def _public_word(word: str) -> str:
    """Also knows a setting that was quoted for a remote shell."""
    match = re.match(r"'?([A-Za-z_]\w*)=", word)
    return f"{match[1]}=${match[1]}" if match and looks_secret(match[1]) else word


def _public(name: str, value: str) -> str:
    return f"${name}" if looks_secret(name) else value


def _lines(argv: Sequence[str]) -> list[str]:
    """Each flag with its values on a line of its own."""
    words: list[str] = []
    for word in public_words(argv):
        breaks = word.startswith("--") and words
        words.append(f"\\\n  {_quoted(word)}" if breaks else _quoted(word))
    return words


def _quoted(word: str) -> str:
    if not PLACEHOLDER.search(word):
        return shlex.quote(word)
    if re.fullmatch(r"[\w${}:./@,=-]+", word):
        return word
    return '"' + re.sub(r'(["`\\])', r"\\\1", word) + '"'

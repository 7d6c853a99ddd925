"""From the options of `launch` to its commands: which version, which rules, then print or run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsabench.config.launch_args import with_args
from dsabench.config.load import load_launch
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import RuntimeConfig
from dsabench.errors import InputError, TrialFault
from dsabench.model.hardware import accelerator
from dsabench.model.runtime import RuntimeSpec, SettingCheck
from dsabench.model.topology import SINGLE, Role, RoleHosts, Topology
from dsabench.runtimes.command import Launch, in_shell, public_env
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import PlannedProcess
from dsabench.runtimes.ports import PortLease
from dsabench.runtimes.protocol import Place, Runtime
from dsabench.sglang.images import known_image
from dsabench.sglang.model_config import local_folder
from dsabench.signals import run_loop, stop_at_any_signal

if TYPE_CHECKING:
    from dsabench.distributed.ray_cluster import RayCluster
    from dsabench.emit.deployment import Form


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How commands are written, or run."""

    runtime_version: str | None
    dry_run: bool
    as_json: bool
    logs: Path | None = None


@dataclass(frozen=True, slots=True)
class EmittedDeployment:
    """Files in place of commands."""

    form: Form
    out: Path | None = None
    """None prints the one file."""
    image: str | None = None


def run_launch(name: str, options: LaunchOptions, launch_args: Sequence[str]) -> int:
    """Print or run the commands of a config or recipe; returns the exit code."""
    config = with_args(load_launch(name), launch_args)
    return launch(options, make_runtime(config), config.spec({}))


def launch_on_ray(name: str, options: LaunchOptions, launch_args: Sequence[str], cluster: RayCluster) -> int:
    """Run a config or recipe on the nodes of a Ray cluster; returns the exit code."""
    from dsabench.distributed.ray_launch import on_nodes

    if options.dry_run:
        raise InputError("--executor ray runs it: Ray chooses the nodes that --dry-run would have to name")
    config = with_args(load_launch(name), launch_args)
    with on_nodes(config, cluster, _say) as there:
        return launch(options, make_runtime(there), there.spec({}))


def emit_deployment(name: str, options: LaunchOptions, wanted: EmittedDeployment, launch_args: Sequence[str]) -> int:
    """Print the files of a scheduler that runs a config or recipe, or write them; returns the exit code."""
    from dsabench.emit.deployment import Wanted, deployment_of
    from dsabench.emit.schedulers import FILES, write_files

    config = with_args(load_launch(name), launch_args)
    setting = checked_setting(options, make_runtime(config), config.spec({}))
    if setting is None:
        return 2
    label = Path(name).stem
    made = Wanted(config, setting.spec, setting.version, label, (f"from {label}",), wanted.image)
    files = FILES[wanted.form](deployment_of(made, wanted.form))
    if wanted.out is not None:
        for path in write_files(wanted.out, files):
            print(path)
    elif len(files) > 1:
        raise InputError(f"--emit {wanted.form} makes {len(files)} files: --out says where")
    else:
        print(*files.values(), end="")
    return 0


def baseline_command(config: RuntimeConfig, spec: RuntimeSpec, version: str) -> tuple[str, ...]:
    """The default of a study as commands of a shell, one for each process, as a boot runs them; none of a server that
    runs already.

    Where a boot picks a free port it is named PORT.
    """
    sites = {"server": RoleHosts(port="PORT")} if _picks_port(spec) else {}
    processes = make_runtime(config).plan(spec, version, sites=sites).processes
    return tuple(in_shell(process.argv, public_env(process.env)) for process in processes)


def _picks_port(spec: RuntimeSpec) -> bool:
    return spec.topology is None and runtime_kinds()[spec.kind].picks_port


@dataclass(frozen=True, slots=True)
class CheckedSetting:
    """A setting that no rule forbids."""

    runtime: Runtime
    spec: RuntimeSpec
    """As it was given; a model of this machine by its folder."""
    version: str | None
    """The release that it is checked for; None for what is installed."""

    @property
    def processes(self) -> tuple[PlannedProcess, ...]:
        """Its commands, at the places of the config."""
        sites = {"server": RoleHosts(port=run_loop(_free_port()))} if _picks_port(self.spec) else {}
        return self.runtime.plan(self.spec, self.version, sites=sites).processes


def checked_setting(options: LaunchOptions, runtime: Runtime, spec: RuntimeSpec) -> CheckedSetting | None:
    """The setting for a release; None where a rule forbids it. What is to be known of it is said on stderr."""
    version = _release(options, spec, runtime)
    folder = local_folder(spec.model) if runtime_kinds()[spec.kind].models is None else None
    spec = spec if folder is None else spec.model_copy(update={"model": str(folder)})
    if not _pass(runtime.check((spec,), version)[0]):
        nearest = runtime.nearest(spec, version)
        if nearest:
            _note(f"it runs without {', '.join(nearest)}")
        return None
    return CheckedSetting(runtime, spec, version)


def launch(options: LaunchOptions, runtime: Runtime, spec: RuntimeSpec) -> int:
    """Print or run the commands of a setting; returns the exit code."""
    setting = checked_setting(options, runtime, spec)
    if setting is None:
        return 2
    spec, processes = setting.spec, setting.processes
    _say_image(spec, runtime.launch)
    if options.dry_run:
        _print(processes, spec.topology or SINGLE, as_json=options.as_json)
        return 0
    if len(processes) > 1 or runtime.launch.is_elsewhere:
        return drive(runtime, spec, options.logs)
    return _run(processes[0].argv, processes[0].env)


async def _free_port() -> int:
    async with PortLease() as lease:
        return lease.port


def _release(options: LaunchOptions, spec: RuntimeSpec, runtime: Runtime) -> str | None:
    """The version that the commands are written for; None for what is installed."""
    if options.runtime_version is not None and not options.dry_run:
        raise InputError("--runtime-version is for --dry-run; what runs is what is installed")
    if options.runtime_version is not None and not runtime.releases:
        raise InputError("--runtime-version is for kind sglang")
    wanted = options.runtime_version or spec.version
    if not options.dry_run or not runtime.releases or wanted is not None:
        return wanted if options.dry_run and runtime.releases else None
    if runtime.launch.python is not None or runtime.launch.is_elsewhere:
        return None
    newest = runtime.releases[-1]
    _note(f"no interpreter is named: the commands are for sglang {newest} (--runtime-version says another)")
    return newest


def _say_image(spec: RuntimeSpec, launch: Launch) -> None:
    """What is to be known of an image that the config left to the hardware."""
    if launch.container is None or launch.container.image is not None:
        return
    image = known_image(None if spec.hardware is None else accelerator(spec.hardware))
    if image is not None and image.note:
        _note(f"no image is named: {image.name} is taken, which {image.note}")


def _pass(check: SettingCheck) -> bool:
    """Say everything that there is to say; whether nothing forbids the launch."""
    for violation in check.violations:
        print(f"error: {violation.line}", file=sys.stderr)
    for note in check.notes:
        _note(note.line)
    return not check.violations


def _print(processes: tuple[PlannedProcess, ...], topology: Topology, *, as_json: bool) -> None:
    roles: dict[str, Role] = {role.role: role for role in topology.roles}
    several = any(role.instances > 1 for role in topology.roles)
    if as_json:
        keys = ("role", "node_rank", "argv", "env", *(("instance",) if several else ()))
        listed = [{key: process.public()[key] for key in keys} for process in processes]
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    for process in processes:
        if len(processes) > 1:
            print(f"# {_place(process, roles.get(process.role))}")
        print(in_shell(process.argv, public_env(process.env)))
        print()


def _place(process: PlannedProcess, role: Role | None) -> str:
    """`prefill 1, node 0 of 2`."""
    name = process.role if role is None or role.instances == 1 else f"{process.role} {process.instance}"
    return name if role is None or role.nodes == 1 else f"{name}, node {process.node_rank} of {role.nodes}"


def _run(argv: tuple[str, ...], env: Mapping[str, str]) -> int:
    """Become the server: signals and exit code are its own. Comes back only when it cannot be started."""
    print(in_shell(argv, public_env(env)), file=sys.stderr, flush=True)
    try:
        # A folder named like a package in the working directory must not shadow an installed one.
        os.execvpe(argv[0], argv, {**os.environ, "PYTHONSAFEPATH": "1", **env})  # noqa: S606
    except OSError as error:
        raise InputError(f"cannot run {argv[0]}: {error.strerror}") from error


def _note(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def drive(runtime: Runtime, spec: RuntimeSpec, logs: Path | None) -> int:
    """Start it, say where it answers, and take all of it down at Ctrl-C (130), or when a part ends.

    Logs that no folder was named for are gone with it, unless a part failed.

    Raises:
        TrialFault: a part failed or ended by itself; the others are gone by then.

    """
    stop_at_any_signal()
    try:
        run_loop(_serve(runtime, spec, logs))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(runtime: Runtime, spec: RuntimeSpec, logs: Path | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dsabench-launch-")) if logs is None else logs
    passing = logs is None
    _say(f"logs: {folder}")
    try:
        async with runtime.serve(spec, Place(folder=folder, on_progress=_say)) as server:
            print(server.base_url, flush=True)
            _say(f"ready after {server.boot_s:.1f} s; Ctrl-C ends all of it")
            await server.died()
    except TrialFault:
        passing = False  # a fault shows only the end of its log
        raise
    finally:
        if passing:
            shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""A Ray cluster: its nodes, and a booter for every set of GPUs that a setting takes, of one node or of several."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.distributed.booter import Booter, BootOrder, Message
from dsabench.distributed.placement import Placement, note_on_prefix, on_one_node
from dsabench.errors import InputError, MachineGone, StoreError, TrialFault
from dsabench.machine.model_files import share_in_memory, weight_files
from dsabench.model.environment import Environment
from dsabench.model.record import EvalTrial, Record
from dsabench.results.journal import place_inside, whole_file
from dsabench.sglang.model_config import local_folder
from dsabench.study.machines import EvalsOfBoot, Needs
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession
from dsabench.study.trial import record_fault

_ACCELERATOR = "ray.io/accelerator-type"
"""Of a node with GPUs; Ray sets it by itself."""
_STORE_BYTES = 200 << 20
"""Of a Ray that is started for one run: records and their samples pass through, one at a time."""
_TAIL = 8000
_ANSWER_S = 5.0
SILENT_S = 20.0
"""How long GPUs may be waited for without a word."""
_LOOK_S = 15.0
"""How long nodes are waited for that are asked what they have in memory; Ray starts a process on each."""
_TENTH = 0.1
"""Nodes whose shares of the weights in memory differ by less are alike."""
_STOP_S = 60.0
"""A server has 20 s from TERM to KILL; then the booter and all that it started are killed."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Machines that Ray knows. Without an address: the cluster that this machine is of, or else Ray on this machine alone."""

    address: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only nodes that have all of them are taken."""

    @asynccontextmanager
    async def machines(
        self, config: StudyConfig, needs: Needs, observer: StudyObserver
    ) -> AsyncIterator[Sequence[RayMachine]]:
        """As many booters as find their GPUs on a node; where no setting takes one, one a node. Where a server has several machines, or no
        node has all GPUs of a topology of several, a booter has as many nodes as the topology has machines.

        Raises:
            InputError: Ray is not installed, the cluster does not answer, or no node has the labels, so many GPUs or the runtime.

        """
        await require_listener(self.address)
        ray = connect(self.address)
        try:
            made = await _found(ray, config, needs, self.labels, observer)
            try:
                are_open = await asyncio.gather(*(opened(one, observer) for one in made))
                if not any(are_open):
                    raise InputError(f"--executor ray: {made[0].why_not}")
                machines = [one for one, is_open in zip(made, are_open, strict=True) if is_open]
                for why_not in left_out(made, machines[0].environment):
                    observer.note(f"warning: {why_not}; it is left out")
                yield [one for one in machines if not one.why_not]
            finally:
                await asyncio.gather(*(one.close() for one in made))
                for group in {one.group for one in made if one.group is not None}:
                    ray.util.remove_placement_group(group)
        finally:
            await asyncio.to_thread(ray.shutdown)


async def opened(machine: RayMachine, observer: StudyObserver) -> bool:
    """Open it. Ray keeps an actor waiting, without a word, for as long as others have the GPUs of its node."""
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(machine.open())
        await asyncio.wait({opening}, timeout=SILENT_S)
        if not opening.done():
            observer.note(f"{machine.name}: waits for its GPUs")
    return opening.result()


@dataclass(slots=True)
class RayMachine:
    """One booter of a node."""

    name: str
    make: Callable[[], Any]
    """Starts the actor, on its node."""
    is_alive: Callable[[], bool]
    """Whether its node is, or all of its nodes are."""
    group: Any = None
    """The placement group of a booter with several nodes."""
    environment: Environment = field(init=False)
    why_not: str = ""
    _actor: Any = None
    _answered: bool = False
    """Not while it waits for its GPUs, nor where it could not start: then there is nothing to end in order."""

    async def open(self) -> bool:
        """Start the booter and ask what its records will say of the machine. False, with `why_not`, where it cannot boot."""
        from ray.exceptions import RayError  # noqa: PLC0415  (optional)

        try:
            self._actor = self.make()
            self.environment = Environment.model_validate_json(await self._actor.environment.remote())
        except RayError as error:
            self.why_not = f"{self.name}: {_cause(error)}"
            return False
        self._answered = True
        return True

    async def run_boot(
        self, session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot | None = None
    ) -> tuple[Record, ...]:
        """Boot there, and write here what comes back. A lost booter is a transient fault of what it had not recorded.

        Raises:
            InputError: the workload does not fit the server.
            TrialFault: kind `not_gone`.
            StoreError: a record could not be written.
            MachineGone: the node is lost; its trials have their records.

        """
        from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415

        order = BootOrder(
            study=session.study,
            trials=tuple(trials),
            evals=evals,
            known=() if evals is None else _scored_before(evals, session),
            ready_timeout_s=session.ready_timeout_s,
            price_per_gpu_hour=session.price_per_gpu_hour,
            labels=session.labels,
        )
        records: list[Record] = []
        try:
            await self._require_all_nodes()
            async for reference in self._actor.boot.remote(order.model_dump_json()):
                _take(await reference, session, trials, records)
        except RayTaskError as error:  # of ours: the booter lives
            fault = TrialFault("internal", _cause(error), stage="boot", log_tail=str(error)[-_TAIL:])
            records += record_fault(session, trials[len(records) :], fault)
        except RayError as error:
            fault = TrialFault("killed", f"{self.name} was lost: {_cause(error)}", stage="boot", transient=True)
            records += record_fault(session, trials[len(records) :], fault)  # evals go on in a boot of their own
            if not (self.is_alive() and await self.open()):
                raise MachineGone(f"{self.name} is gone: {_cause(error)}") from error
        except BaseException:
            await self._stop()
            raise
        return tuple(records)

    async def _require_all_nodes(self) -> None:
        """Raise MachineGone where one of several nodes answers no more: the booter would wait for it in vain."""
        if self.group is None:
            return
        try:
            async with asyncio.timeout(SILENT_S):
                await asyncio.gather(*_greetings(self.group))
        except TimeoutError as error:
            raise MachineGone(f"{self.name}: a node is gone") from error

    async def _stop(self) -> None:
        with suppress(Exception):  # a lost booter has nothing left to stop
            async with asyncio.timeout(_STOP_S):
                await self._actor.stop.remote()

    async def close(self) -> None:
        """End the booter and what it started."""
        if self._actor is not None:
            if self._answered:
                with suppress(Exception):
                    async with asyncio.timeout(_STOP_S):
                        await self._actor.close.remote()
            import ray  # noqa: PLC0415

            ray.kill(self._actor)


def _scored_before(evals: EvalsOfBoot, session: TrialSession) -> tuple[Record, ...]:
    known = session.journal.read().records
    return tuple(one for one in known if isinstance(one.trial, EvalTrial) and one.trial.runtime == evals.spec)


def _take(message: Message, session: TrialSession, trials: Sequence[PlannedTrial], records: list[Record]) -> None:
    match message.kind:
        case "record":
            _write(message, session.folder)
            record = Record.model_validate_json(message.text)
            session.journal.append(record)
            records.append(record)
            session.observer.record_written(record)
        case "logs":
            _write(message, session.folder)
        case "input_error":
            raise InputError(message.text)
        case "store_error":
            raise StoreError(message.text)
        case "not_gone":
            raise TrialFault("not_gone", message.text, stage="boot")
        case _:
            _show(message, session.observer, trials)


def _show(message: Message, observer: StudyObserver, trials: Sequence[PlannedTrial]) -> None:
    match message.kind:
        case "progress":
            observer.boot_progress(message.text)
        case "ready":
            observer.boot_ready(message.numbers[0])
        case "started":
            observer.trial_started(trials[int(message.numbers[0])])
        case "requests":
            observer.requests_done(int(message.numbers[0]), int(message.numbers[1]))
        case "note":
            observer.note(message.text)


def _write(message: Message, folder: Path) -> None:
    """Before the record that names them."""
    for name, content in message.files.items():
        with whole_file(place_inside(folder, name), "what a node sent was not written") as file:
            file.write(content)


async def require_listener(given: str | None) -> None:
    """Raise InputError where nobody listens at the address that is given, or else in RAY_ADDRESS. Ray itself asks a silent one for minutes, and no
    interrupt ends that.
    """
    address, named = given, "--ray-address "
    if address is None:
        address, named = os.environ.get("RAY_ADDRESS", ""), "RAY_ADDRESS="
        if ":" not in address:  # none, or one of Ray's words: auto, local
            return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"{named}{address}: nothing answers there; give HOST:PORT of the cluster's head") from error


def connect(address: str | None) -> Any:
    """The module `ray`, connected.

    Raises:
        InputError: it is not installed, or no cluster answers.

    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Of a Ray that is started here: a server is to run as without it.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray  # noqa: PLC0415  (optional, and a second of start)
    except ImportError as error:
        raise InputError("--executor ray: the package ray is not installed here") from error
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    own: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "object_store_memory": _STORE_BYTES}
    # Ray tells of lost nodes on stdout, where the one object of --json belongs.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None  # noqa: SLF001 (no setting says it)
    at_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "auto", **quiet)
    except RuntimeError as error:  # another version of Ray or Python there
        raise InputError(f"--executor ray: {_cause(error)}") from error
    except ConnectionError as error:
        if address is not None:
            hint = "; one that asks for a token takes RAY_AUTH_MODE=token here"
            raise InputError(f"--ray-address {address}: no cluster answers there{hint}") from error
        ray.init(address="local", include_dashboard=False, **own, **quiet)
    finally:
        signal.signal(signal.SIGTERM, at_term)  # Ray's own ends the process, with an exit code of 0
    return ray


def parsed_labels(given: Sequence[str]) -> dict[str, str]:
    """Label → value.

    Raises:
        InputError: one of them is no KEY=VALUE.

    """
    for one in given:
        if not all(one.partition("=")):
            raise InputError(f"--ray-label {one}: use KEY=VALUE, such as {_ACCELERATOR}=H200")
    return dict(one.split("=", 1) for one in given)


def nodes_for(
    ray: Any, hardware: str | None, labels: Mapping[str, str], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Living nodes with these labels, the one of this process first. Of several kinds of GPUs, by Ray's own label, the one that the config is for."""
    found = [node for node in alive(ray) if labels.items() <= node["Labels"].items()]
    told = [node for node in found if _ACCELERATOR in node["Labels"]]
    others = [node for node in told if hardware is None or not is_kind(node["Labels"][_ACCELERATOR], hardware)]
    if others == told:
        return found
    for node in others:
        has = node["Labels"][_ACCELERATOR]
        say(f"node {node['NodeManagerAddress']} has {has}, and the config is for {hardware}: it is left out")
    return [node for node in found if node not in others]


def nearest_first(
    ray: Any, nodes: list[dict[str, Any]], runtime: RuntimeConfig, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The nodes with most of the model's weights in memory first, by tenths; equal ones stay in their order. A node that does not answer has none."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    if len(nodes) < 2 or runtime.base.get("load_format") == "dummy" or runtime.kind != "sglang":
        return nodes
    model = str(local_folder(runtime.model) or runtime.model)
    ask = ray.remote(num_cpus=0, max_retries=0)(_share_of).options
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        asked[node["NodeID"]] = ask(scheduling_strategy=there).remote(model, dict(runtime.launch.env))
    answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_LOOK_S)
    shares = dict.fromkeys(asked, 0.0)
    for name, answer in asked.items():
        with suppress(ray.exceptions.RayError):  # lost meanwhile, or without this version of dsabench: booters say it
            if answer in answered:
                shares[name] = ray.get(answer)
    ordered = by_share(nodes, shares)
    if ordered != nodes:
        first, share = ordered[0]["NodeManagerAddress"], shares[ordered[0]["NodeID"]]
        say(f"node {first} has {share:.0%} of {runtime.model} in memory: it comes first")
    return ordered


def by_share(nodes: Sequence[dict[str, Any]], shares: Mapping[str, float]) -> list[dict[str, Any]]:
    """Descending, by tenths."""
    return sorted(nodes, key=lambda node: -int(shares[node["NodeID"]] / _TENTH))


def _share_of(model: str, env: Mapping[str, str]) -> float:
    return share_in_memory(weight_files(model, {**os.environ, **env}))


def is_kind(kind: str, hardware: str) -> bool:
    """Whether Ray's name of an accelerator (`H200`, `AMD-Instinct-MI300X-OAM`) is that of this hardware (`h200`, `mi300x`)."""
    return f"-{hardware}-" in f"-{kind.lower()}-"


def alive(ray: Any) -> list[dict[str, Any]]:
    """Living nodes. The node of this process first."""
    here = ray.get_runtime_context().get_node_id()
    living = [node for node in ray.nodes() if node["Alive"]]
    return sorted(living, key=lambda node: (node["NodeID"] != here, node["NodeID"]))


async def _found(
    ray: Any, config: StudyConfig, needs: Needs, labels: Mapping[str, str], observer: StudyObserver
) -> list[RayMachine]:
    """Booters of one node each where one is enough, else of several.

    Raises:
        InputError: the cluster has no such nodes.

    """
    if (note := note_on_prefix(config.runtime)) is not None:
        observer.note(note)
    nodes = nodes_for(ray, config.runtime.hardware, labels, observer.note)
    nodes = await asyncio.to_thread(nearest_first, ray, nodes, config.runtime, observer.note)
    made = [] if needs.apart else _machines(ray, config, nodes, needs.gpus)
    if not made and len(needs.machines) > 1:
        made = await _spread(ray, config, nodes, needs.machines, observer)
    if made:
        return made
    raise too_small((needs.gpus,) if len(needs.machines) == 1 else needs.machines, labels)


def too_small(machines: tuple[int, ...], labels: Mapping[str, str]) -> InputError:
    """The cluster has no nodes with so many GPUs and these labels."""
    gpus = f"{', '.join(map(str, machines))} GPUs"
    wanted = " and ".join(([gpus] if any(machines) else []) + [f"{key}={value}" for key, value in labels.items()])
    if len(machines) == 1:
        return InputError(f"--executor ray: no node of the cluster has {wanted}")
    return InputError(f"--executor ray: the cluster has no {len(machines)} nodes with {wanted}")


async def _spread(
    ray: Any,
    config: StudyConfig,
    nodes: Sequence[dict[str, Any]],
    machines: tuple[int, ...],
    observer: StudyObserver,
) -> list[RayMachine]:
    """A booter for every set of nodes, on the first of them. Its GPUs are reserved for as long as the study runs."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    made = []
    for chosen in sets_of_nodes(nodes, machines):
        group, placement = reserved(ray, chosen, machines)
        said = (config.runtime.model_dump_json(), 0, 1, str(Path.cwd()), placement.model_dump_json())
        first = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        name = f"nodes {', '.join(placement.hosts)}"
        booter = _booter(ray, name, chosen, said, num_gpus=machines[0], scheduling_strategy=first)
        booter.group = group
        made.append(booter)
    for one in made:
        if not await asyncio.to_thread(one.group.wait, SILENT_S):
            observer.note(f"{one.name}: waits for its GPUs")
            await one.group.ready()
    return made


def reserved(
    ray: Any, nodes: Sequence[dict[str, Any]], machines: tuple[int, ...], starter: str | None = None
) -> tuple[Any, Placement]:
    """A placement group of these nodes, and what is to be known of it. Without a starter a booter on the first one starts all."""
    name = f"dsabench-{uuid4().hex}"
    # The nodes are chosen here: a group that Ray may place anywhere could leave fewer sets than there are.
    bundles = [
        {f"node:{node['NodeManagerAddress']}": 0.001} | ({"GPU": gpus} if gpus else {})
        for node, gpus in zip(nodes, machines, strict=True)
    ]
    group = ray.util.placement_group(bundles, strategy="STRICT_SPREAD", name=name)
    hosts, context = tuple(node["NodeManagerAddress"] for node in nodes), ray.get_runtime_context()
    return group, Placement(
        address=context.gcs_address,
        namespace=context.namespace,
        group=name,
        hosts=hosts,
        gpus=machines,
        starter=starter or hosts[0],
        has_gpus=starter is None,
    )


def sets_of_nodes(nodes: Sequence[dict[str, Any]], machines: tuple[int, ...]) -> Iterator[list[dict[str, Any]]]:
    """Sets of nodes of other addresses, with as many GPUs as each machine takes; the largest are chosen first."""
    free = list({node["NodeManagerAddress"]: node for node in nodes}.values())
    while True:
        chosen: dict[int, dict[str, Any]] = {}
        for index in sorted(range(len(machines)), key=lambda index: -machines[index]):
            fitting = [node for node in free if node["Resources"].get("GPU", 0) >= machines[index]]
            if not fitting:
                return
            chosen[index] = min(fitting, key=lambda node: node["Resources"].get("GPU", 0))
            free.remove(chosen[index])
        yield [chosen[index] for index in range(len(machines))]


def _greetings(group: Any) -> list[Any]:
    """A word of every node of the group."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    greet = ray.remote(_greet).options
    where = [
        PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        for index in range(group.bundle_count)
    ]
    return [greet(num_cpus=0, scheduling_strategy=one).remote() for one in where]


def _greet() -> str:
    return "here"


def _machines(ray: Any, config: StudyConfig, nodes: Sequence[dict[str, Any]], gpus: int) -> list[RayMachine]:
    """A booter for every set of GPUs. Those of one host, be they of several nodes, share its cores."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    sets = [node for node in nodes for _ in range(_sets_on(node, gpus))]
    of = Counter(node["NodeManagerHostname"] for node in sets)
    made: Counter[str] = Counter()
    found = []
    for node in sets:
        host = node["NodeManagerHostname"]
        share = "" if of[host] == 1 else f", {made[host] + 1} of {of[host]}"
        name = f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]}){share}"
        said = (on_one_node(config.runtime).model_dump_json(), made[host], of[host], str(Path.cwd()))
        pinned = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        found.append(_booter(ray, name, [node], said, num_gpus=gpus, scheduling_strategy=pinned))
        made[host] += 1
    return found


def _sets_on(node: dict[str, Any], gpus: int) -> int:
    return int(node["Resources"].get("GPU", 0)) // gpus if gpus else 1


def _booter(ray: Any, name: str, nodes: Sequence[dict[str, Any]], said: Sequence[object], **options: Any) -> RayMachine:
    """One that stands where the options say, and starts servers on these nodes. It is told what `said` has."""
    actor = ray.remote(Booter).options(num_cpus=0, **options)
    ids = {node["NodeID"] for node in nodes}

    def are_alive() -> bool:
        return ids <= {one["NodeID"] for one in alive(ray)}

    return RayMachine(name, lambda: actor.remote(*said), are_alive)


def left_out(machines: Sequence[RayMachine], wanted: Environment) -> Iterator[str]:
    """Why some of them measure nothing: they cannot boot, or what they measure could not be compared."""
    for one in machines:
        if not one.why_not and one.environment.fingerprint != wanted.fingerprint:
            one.why_not = f"{one.name}: other hardware or versions than the first node has"
        if one.why_not:
            yield one.why_not


def _cause(error: BaseException) -> str:
    """The line that says it: of an error in the booter, its own."""
    inner = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

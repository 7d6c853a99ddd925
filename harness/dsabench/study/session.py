"""What the trials of one run share: runtime, environment, journal, cores, and whom to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.environment import Environment, RuntimeIdentity
from dsabench.model.record import Phase, Record, Trial
from dsabench.model.runtime import (
    Annotate,
    Refuse,
    RuntimeSpec,
    annotate_nothing,
    refuse_nothing,
)
from dsabench.results.journal import Journal
from dsabench.runtimes.protocol import Runtime


@dataclass(frozen=True, slots=True)
class Outlook:
    """The answers; a runtime without rules refuses nothing beforehand and takes no GPU that we know of."""

    refuse: Refuse = refuse_nothing
    gpus: Callable[[RuntimeSpec], int] = lambda _: 0
    annotate: Annotate = annotate_nothing

    def largest(self, specs: Iterable[RuntimeSpec]) -> int:
        """GPUs of the largest setting that is not refused; 0 where no GPU is known of."""
        by_size = sorted(specs, key=self.gpus, reverse=True)
        return next((self.gpus(spec) for spec in by_size if self.refuse(spec) is None), 0)


async def identity_for_plan(runtime: Runtime, config: StudyConfig) -> tuple[RuntimeIdentity, str | None]:
    """What is installed; where nothing is, the version that the config names, or the newest, from the table.

    And a note on that.
    """
    try:
        return await runtime.identity(), None
    except InputError as error:
        if config.runtime.kind != "sglang":
            raise
        from dsabench.runtimes.sglang.accepts import known_versions  # noqa: PLC0415  (only where it is not installed)
        from dsabench.runtimes.sglang.runtime import identity_of_table  # noqa: PLC0415

        version = config.runtime.version or str(known_versions()[-1])
        return identity_of_table(version), f"planned for sglang {version} by its table of flags ({error})"


async def outlook_of(config: StudyConfig, identity: RuntimeIdentity) -> Outlook:
    """For sglang what its rules say, for the version that is installed or asked for."""
    if config.runtime.kind != "sglang":
        return Outlook()
    from dsabench.runtimes.choose import make_rules  # noqa: PLC0415  (the rules are many, and of one kind of runtime)
    from dsabench.runtimes.sglang.gpus import gpus_of  # noqa: PLC0415

    refuse, annotate = await make_rules(config.runtime, identity)
    return Outlook(refuse, gpus_of, annotate)


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial to measure now, and as which occasion."""

    trial: Trial
    occasion: int
    phase: Phase
    round: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom to tell how far it is. Every hook has a default that does nothing."""

    on_boot: Callable[[str], None] = field(default=lambda _: None)
    """A few words on what the boot is doing."""
    on_ready: Callable[[float], None] = field(default=lambda _: None)
    """Seconds that the boot took."""
    on_trial: Callable[[PlannedTrial], None] = field(default=lambda _: None)
    on_requests: Callable[[int, int], None] = field(default=lambda _done, _total: None)
    on_record: Callable[[Record], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class TrialSession:
    """Everything that the trials of a study have in common."""

    study: str
    runtime: Runtime
    environment: Environment
    journal: Journal
    folder: Path
    server_cores: tuple[int, ...] = ()
    client_cores: tuple[int, ...] = ()
    held_fds: tuple[int, ...] = ()
    """Locks that must last until a server is gone, even when this process is killed."""
    ready_timeout_s: float = 1800.0
    watch: Watch = field(default_factory=Watch)
    labels: tuple[str, ...] = ()
    """Of every record, beside those of its setting."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Every core that a measurement uses."""
        return tuple(sorted({*self.server_cores, *self.client_cores}))

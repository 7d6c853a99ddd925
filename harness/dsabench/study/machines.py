"""Machines of a cluster that boot for a study. The process that holds the journal asks them, and writes what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import GateSpec
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession


@dataclass(frozen=True, slots=True)
class Needs:
    """What the largest setting of a study takes."""

    gpus: int
    """In all; 0 where the runtime computes on none."""
    machines: tuple[int, ...] = (0,)
    """GPUs of each machine that the topology may be spread over, in the order of the hosts of its roles."""
    apart: bool = False
    """Whether a server of it stands on several machines."""


@dataclass(frozen=True, slots=True)
class EvalsOfBoot:
    """What the gate asks a setting in its boot, behind what is measured there."""

    spec: RuntimeSpec
    gates: tuple[GateSpec, ...]
    default: RuntimeSpec
    round: int


class Machine(Protocol):
    """A machine, or its share with the GPUs of one setting."""

    @property
    def environment(self) -> Environment:
        """What its records say of it."""

    async def run_boot(
        self, session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot | None = None
    ) -> tuple[Record, ...]:
        """Boot there, measure each trial, ask the evals, and write the records here. All have the same setting; without trials it boots
        for the evals alone.

        Raises:
            InputError, TrialFault, StoreError: as a boot on this machine.
            MachineGone: it boots no more.

        """


class Cluster(Protocol):
    """Where machines come from."""

    def machines(
        self, config: StudyConfig, needs: Needs, observer: StudyObserver
    ) -> AbstractAsyncContextManager[Sequence[Machine]]:
        """Machines of one kind on which a setting finds what it needs; at least one. At the end nothing that they started is left. The observer is told
        which are left out.

        Raises:
            InputError: there is none.

        """

"""What a plan can say of each setting beforehand: what it would be refused for, and how many GPUs it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsabench.config.specs import SweepConfig
from dsabench.errors import InputError
from dsabench.model.refusal import Refuse, refuse_nothing
from dsabench.model.runtime import RuntimeIdentity, RuntimeSpec
from dsabench.runtimes.protocol import Runtime


@dataclass(frozen=True, slots=True)
class Outlook:
    """Both answers; a runtime without rules refuses nothing beforehand and takes no GPU that we know of."""

    refuse: Refuse = refuse_nothing
    gpus: Callable[[RuntimeSpec], int] = lambda _: 0

    def gpu_hours(
        self, ahead: Sequence[RuntimeSpec], left: Sequence[RuntimeSpec], confirm_boots: int, boot_s: float
    ) -> float | None:
        """Hours × GPUs of the boots that are left, refused ones left out; None where no GPU is known of.

        The settings that the confirmation boots are not known yet: they count as the largest of all that are ahead.
        """
        largest = max((self.gpus(spec) for spec in ahead if self.refuse(spec) is None), default=0)
        if largest == 0:
            return None
        searched = sum(self.gpus(spec) for spec in left if self.refuse(spec) is None)
        return (searched + confirm_boots * largest) * boot_s / 3600


async def identity_for_plan(runtime: Runtime, config: SweepConfig) -> tuple[RuntimeIdentity, str | None]:
    """What is installed; where nothing is, the version that the config names, or the newest, from the table.

    And a note on that.
    """
    try:
        return await runtime.identity(), None
    except InputError as error:
        if config.runtime.kind != "sglang":
            raise
        from dsabench.runtimes.sglang.accepts import known_versions
        from dsabench.runtimes.sglang.runtime import identity_of_table

        version = config.runtime.version or str(known_versions()[-1])
        return identity_of_table(version), f"planned for sglang {version} by its table of flags ({error})"


async def outlook_of(config: SweepConfig, identity: RuntimeIdentity) -> Outlook:
    """For sglang what its rules say, for the version that is installed or asked for."""
    if config.runtime.kind != "sglang":
        return Outlook()
    from dsabench.runtimes.choose import make_refuse
    from dsabench.runtimes.sglang.gpus import gpus_of

    return Outlook(await make_refuse(config.runtime, identity), gpus_of)

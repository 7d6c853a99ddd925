"""What a plan can say of each setting beforehand: what is refused or runs otherwise, and how many GPUs it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import Annotate, Refuse, RuntimeSpec, annotate_nothing, refuse_nothing
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
        from dsabench.runtimes.sglang.accepts import known_versions
        from dsabench.runtimes.sglang.runtime import identity_of_table

        version = config.runtime.version or str(known_versions()[-1])
        return identity_of_table(version), f"planned for sglang {version} by its table of flags ({error})"


async def outlook_of(config: StudyConfig, identity: RuntimeIdentity) -> Outlook:
    """For sglang what its rules say, for the version that is installed or asked for."""
    if config.runtime.kind != "sglang":
        return Outlook()
    from dsabench.runtimes.choose import make_rules
    from dsabench.runtimes.sglang.gpus import gpus_of

    refuse, annotate = await make_rules(config.runtime, identity)
    return Outlook(refuse, gpus_of, annotate)

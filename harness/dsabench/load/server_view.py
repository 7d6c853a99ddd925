"""What the server says of itself before and after a run: whether it is still the same process, its accept length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a load generator that starts for one run does not pay for pydantic
    from pydantic import JsonValue

    from dsabench.model.record import Metric

    Info = Mapping[str, JsonValue]

OF_ONE_PROCESS = ("startup_time", "start_time", "pid", "random_seed", "version", "model_path", "served_model_name")
"""Entries of /server_info that a process keeps for life. sglang draws `random_seed` at each start and measures how long
each took (`startup_time`), so that a restart with the same flags shows too."""
_COUNTERS = ("requests", "generated_tokens", "prompt_tokens", "decode_steps")
_GROWING = "uptime_s"


@dataclass(frozen=True, slots=True)
class ServerView:
    """`/server_info` around a run."""

    before: Info
    after: Info

    @property
    def restarted(self) -> str | None:
        """What shows that another process answers now; None where nothing does."""
        for name in OF_ONE_PROCESS:
            if name in self.before and name in self.after and self.before[name] != self.after[name]:
                return f"{name} is another than before the run"
        for name, (before, after) in _counters(self.before, self.after).items():
            if after < before:
                return f"its counter {name} fell from {before:g} to {after:g}"
        return None

    @property
    def lifetime_accept_length(self) -> Metric | None:
        """Mean of `avg_spec_accept_length` over the data-parallel ranks: since the server's start, not of this run."""
        from dsabench.model.record import Metric  # noqa: PLC0415

        values = [
            float(value)
            for state in _states(self.after)
            if isinstance(value := state.get("avg_spec_accept_length"), int | float) and value > 0
        ]
        return Metric(value=sum(values) / len(values), n=len(values)) if values else None


def _states(info: Info) -> list[Mapping[str, JsonValue]]:
    """One per data-parallel rank. A PD router lists its servers' infos; tokens are decoded by the decode servers."""
    servers: Sequence[JsonValue] = decode if isinstance(decode := info.get("decode"), list) else [dict(info)]
    lists = [server.get("internal_states") for server in servers if isinstance(server, dict)]
    return [state for states in lists if isinstance(states, list) for state in states if isinstance(state, dict)]


def _counters(before: Info, after: Info) -> dict[str, tuple[float, float]]:
    """Numbers that only grow while one process lives, where both views have them."""
    found: dict[str, tuple[float, float]] = {}
    places: list[tuple[Info, Info, tuple[str, ...]]] = [(before, after, (_GROWING,))]
    left, right = before.get("reference"), after.get("reference")
    if isinstance(left, dict) and isinstance(right, dict):
        one, other = left.get("counters"), right.get("counters")
        if isinstance(one, dict) and isinstance(other, dict):
            places.append((one, other, _COUNTERS))
    for old, new, names in places:
        for name in names:
            was, now = old.get(name), new.get(name)
            if isinstance(was, int | float) and isinstance(now, int | float):
                found[name] = (float(was), float(now))
    return found

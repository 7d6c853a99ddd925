"""What limits a server, and what shows it."""

from __future__ import annotations

from typing import Literal

from dsabench.model.value import Value

BindingLimit = Literal[
    "kv_cache", "running_requests", "prefill", "cuda_graph", "accept_length", "dp_imbalance", "host_cpu"
]
Limit = BindingLimit | Literal["load", "idle"]
"""`load`: nothing waits, the server would take more. `idle`: too few requests to tell more."""


class Bottleneck(Value):
    """What limits a server, and what shows it."""

    line: str
    """The evidence, in words."""
    limit: Limit | None = None
    """None: cannot tell."""
    between: tuple[Limit, ...] = ()
    """What it can be, where it cannot be told."""
    fix: str | None = None
    """Words to add to the server's command, or where to look."""

    @property
    def binds(self) -> bool:
        """Whether it is known to limit."""
        return self.limit not in {None, "load", "idle"}

    @property
    def words(self) -> str:
        """Such as `KV cache: use is 97%, …`, or `cannot tell: …`."""
        return f"{'cannot tell' if self.limit is None else LIMIT_NAMES[self.limit]}: {self.line}"


LIMIT_NAMES: dict[Limit, str] = {
    "kv_cache": "KV cache",
    "running_requests": "running requests",
    "prefill": "prefill",
    "cuda_graph": "CUDA-graph coverage",
    "accept_length": "accept length",
    "dp_imbalance": "DP imbalance",
    "host_cpu": "host CPU",
    "load": "none",
    "idle": "no load",
}

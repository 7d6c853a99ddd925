"""What limits a server, from a window of its metrics: one limit that the evidence shows, or that it cannot be told.

The rules ask for more evidence than an experienced reader would: a wrong answer costs a sweep, "cannot tell" a look elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from dsabench.doctor.server_window import OFTEN, ServerWindow
from dsabench.machine.checks import Finding, ok, warning
from dsabench.model.bottleneck import Bottleneck, Limit

_LOOKS = 5
"""Looks with requests below which nothing is said."""
_RARELY, _ALMOST_ALWAYS = 0.1, 0.8
"""Shares of the looks, as `OFTEN`."""
_FULL_KV, _ROOM_IN_KV = 0.9, 0.7
_UNEVEN = 1.5
"""Load of one rank against the mean of all."""
_USELESS_DRAFTS = 1.2
"""Tokens of a step with drafts, below which drafts cost more than they bring at any price of a draft."""
_FULL_CORE, _ROOM_ON_CORE = 0.95, 0.8
"""Share of time of the busiest thread."""
_ROOM_ON_GPU = 0.7


def finding_of(found: Bottleneck) -> Finding:
    """As `doctor` lists it."""
    if found.limit in {"load", "idle"}:
        return ok("limit", found.words)
    return warning("limit", found.words, found.fix)


def find_bottleneck(window: ServerWindow) -> Bottleneck:
    """The first rule that has the evidence decides; root causes come before what follows from them."""
    busy = [look for look in window.looks if look.running + look.queued > 0]
    share = len(busy) / max(len(window.looks), 1)
    if len(busy) < _LOOKS:
        line = f"requests in {len(busy)} of {len(window.looks)} looks; it takes {_LOOKS}"
        return Bottleneck(limit="idle" if share < OFTEN else None, line=line)
    if share < OFTEN:
        return Bottleneck(limit="idle", line=f"no request in {1 - share:.0%} of {len(window.looks)} looks")
    loaded = ServerWindow(window.settings, tuple(busy))
    return next(found for rule in _RULES if (found := rule(loaded)) is not None)


def _uneven_ranks(window: ServerWindow) -> Bottleneck | None:
    names = sorted({name for look in window.looks for name in look.ranks})
    if len(names) < 2:
        return None
    loads = {name: median(look.ranks[name].load for look in window.looks if name in look.ranks) for name in names}
    fullest = max(names, key=lambda name: loads[name])
    mean = sum(loads.values()) / len(names)
    alone = [
        look
        for look in window.looks
        if fullest in look.ranks
        and look.ranks[fullest].queued > 0
        and not any(rank.queued for name, rank in look.ranks.items() if name != fullest)
    ]
    if loads[fullest] < _UNEVEN * mean or len(alone) < OFTEN * len(window.looks):
        return None
    line = (
        f"DP rank {fullest} has {loads[fullest]:.0f} requests, the mean of {len(names)} ranks is {mean:.0f}; "
        f"requests wait there alone in {len(alone) / len(window.looks):.0%} of the looks"
    )
    return Bottleneck(
        limit="dp_imbalance", line=line, fix="is that rank slow? nvidia-smi on its GPU; else --load-balance-method"
    )


def _full_kv(window: ServerWindow) -> Bottleneck | None:
    use, retracted = window.kv_use, window.retracted
    if use is None or not (window.waits or retracted):
        return None
    if retracted and use >= _ROOM_IN_KV:
        shown = f"{retracted:.0f} requests were retracted"
    elif use >= _FULL_KV and not window.is_full_batch:
        shown = f"requests wait in {window.waiting:.0%} of the looks"
    else:
        return None
    is_narrow = "fp8" in window.settings.kv_cache_dtype
    fix = "more --mem-fraction-static, or fewer requests at once" if is_narrow else "--kv-cache-dtype fp8_e4m3"
    return Bottleneck(limit="kv_cache", line=f"use is {use:.0%}, {shown}", fix=fix)


def _no_graph(window: ServerWindow) -> Bottleneck | None:
    if window.settings.role == "prefill":
        return None  # prefill steps run without graphs, or with others
    largest, running = window.settings.graph_batch, median(look.largest_batch for look in window.looks)
    if largest == 0.0:
        return Bottleneck(limit="cuda_graph", line="CUDA graphs are off", fix="remove --disable-cuda-graph")
    # A rank without requests runs no graph.
    told = [
        rank.in_graph
        for look in window.looks
        for rank in look.ranks.values()
        if rank.in_graph is not None and rank.running
    ]
    outside = told.count(False) / len(told) if told else None
    beyond = 0.0 if largest is None else sum(look.largest_batch > largest for look in window.looks) / len(window.looks)
    if beyond >= _ALMOST_ALWAYS and (outside is None or outside >= _ALMOST_ALWAYS):
        line = f"{running:.0f} requests run in a rank, graphs reach to {largest:.0f}"
        fix = f"--cuda-graph-max-bs {2 ** (int(running) - 1).bit_length()}"
        return Bottleneck(limit="cuda_graph", line=line, fix=fix)
    if outside is not None and outside >= _ALMOST_ALWAYS:
        # As where nothing but prompts is asked for.
        line = f"no graph runs in {outside:.0%} of the looks, but {running:.0f} requests in a rank should have one"
        return Bottleneck(limit=None, line=line, between=("cuda_graph", "prefill"))
    return None


def _useless_drafts(window: ServerWindow) -> Bottleneck | None:
    told = [look.accept_length for look in window.looks if look.accept_length is not None]
    if not window.settings.speculates or len(told) < _LOOKS or (accepted := median(told)) > _USELESS_DRAFTS:
        return None
    line = f"{accepted:.2f} tokens a step: drafts take time and are not accepted"
    return Bottleneck(limit="accept_length", line=line, fix="fewer --speculative-num-steps, or leave speculation off")


def _busy_host(window: ServerWindow) -> Bottleneck | None:
    busy, gpu = window.thread_busy, window.gpu_busy
    if busy is None or busy < _FULL_CORE or window.settings.computes_on_cpu:
        return None
    line = f"the busiest thread wants a core {busy:.0%} of the time"
    if gpu is None:
        other: Limit = "load" if not window.waits else "running_requests" if window.is_full_batch else "prefill"
        return Bottleneck(limit=None, line=f"{line}; the load of its GPUs is not known", between=("host_cpu", other))
    if gpu > _ROOM_ON_GPU:
        return None
    return Bottleneck(
        limit="host_cpu", line=f"{line}, the busiest GPU works {gpu:.0%} of the time", fix="py-spy top --pid PID"
    )


def _full_batch(window: ServerWindow) -> Bottleneck | None:
    if not window.waits or not window.is_full_batch:
        return None
    use, most = window.kv_use, window.settings.max_running
    if use is not None and use >= _FULL_KV:
        line = f"both the running batch and the KV cache ({use:.0%}) are full"
        return Bottleneck(limit=None, line=line, between=("running_requests", "kv_cache"))
    line = f"a rank runs {most:.0f} at once, its most; others wait in {window.waiting:.0%} of the looks"
    kv = "" if use is None else f", while the KV cache has room ({use:.0%})"
    return Bottleneck(
        limit="running_requests", line=line + kv, fix=f"{window.settings.batch_flag} {2 * (most or 0):.0f}"
    )


def _slow_prefill(window: ServerWindow) -> Bottleneck | None:
    if not window.waits:
        return None
    use, busy, gpu = window.kv_use, window.thread_busy, window.gpu_busy
    running = window.running
    line = f"requests wait in {window.waiting:.0%} of the looks beside {running:.0f} running ones"
    if window.settings.role == "decode":
        return Bottleneck(limit=None, line=f"{line}, on a decode server: its KV may still be on the way")
    if use is None or window.settings.max_running is None:
        return Bottleneck(limit=None, line=f"{line}; the server does not say how full it is")
    if use >= _ROOM_IN_KV:
        return Bottleneck(limit=None, line=f"{line}, the KV cache is {use:.0%} full", between=("kv_cache", "prefill"))
    has_time = (
        window.settings.computes_on_cpu
        or (busy is not None and busy < _ROOM_ON_CORE)
        or (gpu is not None and gpu > _ROOM_ON_GPU)
    )
    if not has_time:
        return Bottleneck(
            limit=None, line=f"{line}; the host's processes cannot be seen", between=("prefill", "host_cpu")
        )
    chunk = window.settings.chunk
    fix = f"--chunked-prefill-size {2 * chunk:.0f}" if chunk and chunk > 0 else "a larger --chunked-prefill-size"
    return Bottleneck(limit="prefill", line=f"{line}, with room in batch and KV cache ({use:.0%})", fix=fix)


def _nothing(window: ServerWindow) -> Bottleneck:
    running = window.running
    most, use = window.settings.max_running, window.kv_use
    room = [f"{running:.0f} requests run" + ("" if most is None else f" of {most:.0f} a rank")]
    room += [] if use is None else [f"KV use is {use:.0%}"]
    if window.waiting > _RARELY:
        return Bottleneck(limit=None, line=f"requests wait in {window.waiting:.0%} of the looks ({', '.join(room)})")
    return Bottleneck(limit="load", line=f"nothing waits, it takes all that comes ({', '.join(room)})")


_RULES: Sequence[Callable[[ServerWindow], Bottleneck | None]] = (
    *(_uneven_ranks, _full_kv, _no_graph, _useless_drafts, _busy_host, _full_batch, _slow_prefill, _nothing),
)

"""A deployment in the foreground whose servers stand on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dsabench.config.specs import RuntimeConfig
from dsabench.distributed.placement import note_on_prefix
from dsabench.distributed.ray_cluster import (
    SILENT_S,
    RayCluster,
    connect,
    nearest_first,
    nodes_for,
    require_listener,
    reserved,
    sets_of_nodes,
    too_small,
)
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import machines_of
from dsabench.signals import run_loop


@contextmanager
def on_nodes(config: RuntimeConfig, cluster: RayCluster, say: Callable[[str], None]) -> Iterator[RuntimeConfig]:
    """The same deployment on nodes of the cluster, one for each of its machines, which it has until this ends. The router is here.

    Raises:
        InputError: Ray is not installed, the cluster does not answer, or has no such nodes.

    """
    run_loop(require_listener(cluster.address))
    ray = connect(cluster.address)
    try:
        gpus = machines_of(config.spec({}), make_runtime(config).gpus)
        found = nearest_first(ray, nodes_for(ray, config.hardware, cluster.labels, say), config, say)
        nodes = next(sets_of_nodes(found, gpus), None)
        if nodes is None:
            raise too_small(gpus, cluster.labels)
        group, placement = reserved(ray, nodes, gpus, ray.util.get_node_ip_address())
        try:
            if (note := note_on_prefix(config)) is not None:
                say(note)
            if not group.wait(SILENT_S):
                say(f"waits for the GPUs of {', '.join(placement.hosts)}")
                ray.get(group.ready())
            yield placement.launched(config)
        finally:
            ray.util.remove_placement_group(group)
    finally:
        ray.shutdown()

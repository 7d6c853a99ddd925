"""A deployment as a job of a Ray cluster that Kubernetes makes for it (KubeRay)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from dsabench.emit.deployment import EVERYWHERE, Deployment, variables_of
from dsabench.emit.kubernetes import folders_of, gpu_limits, manifest, secret
from dsabench.model.topology import ROUTER

Json = dict[str, Any]

_FOLDER, _FILE = "/etc/dsabench", "config.yaml"
_HEAD_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}


def ray_files(deployment: Deployment) -> dict[str, str]:
    """`rayjob.yaml`: `kubectl apply -f`. A node with GPUs for each machine; the head runs `dsabench launch --executor ray` and the router."""
    one, name = deployment, f"{deployment.name}-config"
    runtime = {**one.runtime, "ready_timeout_s": one.ready_timeout_s, **_launch_of(one)}
    written = yaml.safe_dump({"name": one.name, "runtime": runtime}, sort_keys=False, allow_unicode=True)
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {_FILE: written}}
    ]
    if one.router is not None:
        ports = [{"name": "http", "port": one.router_port}]
        spec = {"selector": _labels(one), "ports": ports}
        objects.append(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{one.name}-{ROUTER}"}, "spec": spec}
        )
    job = {
        "entrypoint": f"dsabench launch {_FOLDER}/{_FILE} --executor ray",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": {"headGroupSpec": _head(one, name), "workerGroupSpecs": _workers(one)},
    }
    objects.append({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": one.name}, "spec": job})
    return {"rayjob.yaml": manifest(one, objects)}


def _launch_of(deployment: Deployment) -> Json:
    """Others reach the router."""
    if deployment.router is None:
        return {}
    return {"launch": {"sites": {ROUTER: {"port": deployment.router_port, "bind": EVERYWHERE}}}}


def _secrets_of(deployment: Deployment) -> list[Json]:
    """What the cluster has, for servers to inherit."""
    variables = [variables_of(process) for instance in deployment.instances for process in instance.processes]
    return [secret(name) for name in dict.fromkeys(name for one in variables for name in one if one[name] is None)]


def _labels(deployment: Deployment) -> Json:
    return {"app.kubernetes.io/name": deployment.name, "app.kubernetes.io/component": "head"}


def _head(deployment: Deployment, config: str) -> Json:
    ports = dict(_HEAD_PORTS)
    if deployment.router is not None:
        ports["http"] = deployment.router_port
    container = {
        "name": "ray-head",
        "image": deployment.image,
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "volumeMounts": [{"name": "config", "mountPath": _FOLDER}],
    }
    volumes = [{"name": "config", "configMap": {"name": config}}]
    return {
        "rayStartParams": {"num-gpus": "0"},
        "template": {
            "metadata": {"labels": _labels(deployment)},
            "spec": {"containers": [container], "volumes": volumes},
        },
    }


def _workers(deployment: Deployment) -> list[Json]:
    """A group of equal nodes for each number of GPUs."""
    mounts, volumes = folders_of(deployment)
    machines = Counter(instance.gpus for instance in deployment.instances for _ in instance.nodes)
    groups = []
    for gpus, count in sorted(machines.items()):
        container = {
            "name": "ray-worker",
            "image": deployment.image,
            "env": _secrets_of(deployment),
            "resources": gpu_limits(deployment, gpus),
            "volumeMounts": mounts,
        }
        groups.append(
            {
                "groupName": f"gpus-{gpus}",
                "replicas": count,
                "minReplicas": count,
                "maxReplicas": count,
                "rayStartParams": {},
                "template": {"spec": {"containers": [container], "volumes": volumes}},
            }
        )
    return groups

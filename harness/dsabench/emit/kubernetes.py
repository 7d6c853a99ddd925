"""A deployment as objects of Kubernetes: stateful sets, leader-worker sets, or a Helm chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from dsabench.emit.deployment import CACHE, RELEASE, Deployment, Instance, variables_of, with_rank
from dsabench.model.topology import ROUTER
from dsabench.runtimes.plan import PlannedProcess

Json = dict[str, Any]

_RESOURCES = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu", "npu": "huawei.com/Ascend910"}
_CACHE_ON_NODE = "/var/cache/huggingface"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (where NCCL and the schedulers share memory)
_PROBE_PERIOD_S = 10
_IMAGE, _FOLDER, _RESOURCE = "helm-value-image", "/helm-value-folder", "helm.value/resource"
_SELECTOR = {"helm-value-selector": ""}


def k8s_files(deployment: Deployment) -> dict[str, str]:
    """`kubernetes.yaml`: `kubectl apply -f`. A stateful set per server, with a pod per machine."""
    return {"kubernetes.yaml": manifest(deployment, StatefulSets(deployment).all())}


def lws_files(deployment: Deployment) -> dict[str, str]:
    """`lws.yaml`: the same with leader-worker sets, which restart the machines of a server together."""
    return {"lws.yaml": manifest(deployment, LeaderWorkerSets(deployment).all())}


def helm_files(deployment: Deployment) -> dict[str, str]:
    """A chart in `chart/`. Image, weights, GPU resource and node selector are its values; the release gives the name."""
    objects = StatefulSets(replace(deployment, image=_IMAGE), weights=_FOLDER, gpu=_RESOURCE, selector=_SELECTOR)
    values: Json = {
        "image": deployment.image,
        "gpuResource": _RESOURCES[deployment.platform],
        "weights": deployment.model if deployment.has_own_weights else _CACHE_ON_NODE,
        "nodeSelector": {},
    }
    chart = {
        "apiVersion": "v2",
        "name": "sglang-dsa",
        "description": "SGLang with the best setting of a dsabench study",
        "type": "application",
        "version": "0.1.0",
    }
    return {
        "chart/Chart.yaml": _dumped(chart),
        "chart/values.yaml": deployment.comment + _dumped(values),
        "chart/templates/sglang.yaml": _templated("---\n".join(map(_dumped, objects.all()))),
    }


def _templated(text: str) -> str:
    """Braces of a setting are text to Helm; what stands for a value becomes one."""
    text = text.replace("{{", '{{ "{{" }}')
    selector = '{ {{ range $key, $value := .Values.nodeSelector }}{{ printf "%q: %q, " $key $value }}{{ end }}}'
    return (
        text.replace(RELEASE, "{{ .Release.Name }}")
        .replace(_IMAGE, '{{ printf "%q" .Values.image }}')
        .replace(_FOLDER, '{{ printf "%q" .Values.weights }}')
        .replace(_RESOURCE, "{{ .Values.gpuResource }}")
        .replace("helm-value-selector: ''", selector)
    )


def manifest(deployment: Deployment, objects: Iterable[Json]) -> str:
    """One file of them, which says how to use it."""
    how = "kubectl apply -f FILE; for a private model: kubectl create secret generic huggingface --from-literal=HF_TOKEN=..."
    return f"{deployment.comment}# {how}\n" + "---\n".join(map(_dumped, objects))


def _dumped(document: Json) -> str:
    return yaml.dump(document, Dumper=_ForPeople, sort_keys=False, allow_unicode=True, width=120)


class _ForPeople(yaml.SafeDumper):
    """Writes what stands in two places twice, and text of several lines as it is."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        """A string."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_ForPeople.add_representer(str, _ForPeople.text)


@dataclass(frozen=True, slots=True)
class StatefulSets:
    """The objects of a deployment: services, what runs the pods of each server, and the router."""

    deployment: Deployment
    weights: str = ""
    """Folder of the nodes with the weights; empty for that of the model, or a cache of the hub."""
    gpu: str = ""
    """Name of the resource; empty for the platform's."""
    selector: Json | None = None
    """Labels of the nodes that pods may be placed on."""

    def all(self) -> Iterator[Json]:
        """In the order in which they are made."""
        one = self.deployment
        if one.router is None:
            server = one.instances[0]
            yield self._service(one.name, self._first_pod(server), server.port)
        else:
            yield self._service(f"{one.name}-{ROUTER}", self._labels(ROUTER), one.router_port)
        for instance in one.instances:
            yield from self._server(instance)
        if one.router is not None:
            yield self._router(one.router)

    def _labels(self, part: str) -> Json:
        return {"app.kubernetes.io/name": self.deployment.name, "app.kubernetes.io/component": part}

    def _name(self, instance: Instance) -> str:
        return f"{self.deployment.name}-{instance.name}"

    def _service(self, name: str, selector: Json, *ports: int, **more: object) -> Json:
        listed = [{"name": f"port-{port}", "port": port} for port in ports]
        spec = {**more, "selector": selector, "ports": listed}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}

    def _first_pod(self, instance: Instance) -> Json:
        """What selects the pod that answers."""
        return {"statefulset.kubernetes.io/pod-name": f"{self._name(instance)}-0"}

    def _server(self, instance: Instance) -> Iterator[Json]:
        """Its machines find each other before they are ready."""
        name, labels = self._name(instance), self._labels(instance.name)
        ports = (instance.port, *instance.other_ports)
        yield self._service(name, labels, *ports, clusterIP="None", publishNotReadyAddresses=True)
        index = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}  # since Kubernetes 1.28
        rank = [{"name": "NODE_RANK", "valueFrom": index}] if len(instance.nodes) > 1 else []
        spec = {
            "serviceName": name,
            "replicas": len(instance.nodes),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": self._pods(instance, "$(NODE_RANK)", rank),
        }
        yield {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }

    def _pods(self, instance: Instance, rank: str, variables: list[Json]) -> Json:
        one = self.deployment
        mounts, volumes = folders_of(one, self.weights)
        health = {
            "httpGet": {"path": "/health", "port": instance.port},
            "periodSeconds": _PROBE_PERIOD_S,
            "timeoutSeconds": 20,
        }
        limits = gpu_limits(one, instance.gpus, self.gpu)
        container = {
            **self._container(instance.processes[0], with_rank(instance.processes, rank), variables),
            "ports": [{"containerPort": port} for port in (instance.port, *instance.other_ports)],
            "resources": limits,
            "startupProbe": {**health, "failureThreshold": math.ceil(one.ready_timeout_s / _PROBE_PERIOD_S)},
            "readinessProbe": health,
            "volumeMounts": mounts,
        }
        selector = {} if self.selector is None else {"nodeSelector": self.selector}
        return {
            "metadata": {"labels": self._labels(instance.name)},
            "spec": {**selector, "containers": [container], "volumes": volumes},
        }

    def _container(self, process: PlannedProcess, words: tuple[str, ...], variables: list[Json]) -> Json:
        """A variable that looks like a secret is taken from the cluster's."""
        env = [
            secret(name) if value is None else {"name": name, "value": _escaped(value)}
            for name, value in variables_of(process).items()
        ]
        ours = ("$(NODE_RANK)", "$(LWS_WORKER_INDEX)")
        command = [word if word in ours else _escaped(word) for word in words]
        return {"name": "sglang", "image": self.deployment.image, "command": command, "env": [*variables, *env]}

    def _router(self, process: PlannedProcess) -> Json:
        """After the servers: it gives up workers that do not answer yet."""
        one, labels = self.deployment, self._labels(ROUTER)
        servers = " ".join(f"{self._name(part)}-0.{self._name(part)}:{part.port}" for part in one.instances)
        wait = f"for server in {servers}; do until curl -fsS -o /dev/null http://$server/health; do sleep 5; done; done"
        health = {"httpGet": {"path": "/health", "port": one.router_port}, "periodSeconds": _PROBE_PERIOD_S}
        waiting = {"name": "wait-for-servers", "image": one.image, "command": ["sh", "-c", wait]}
        container = {
            **self._container(process, process.argv, []),
            "ports": [{"containerPort": one.router_port}],
            "readinessProbe": health,
        }
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"initContainers": [waiting], "containers": [container]},
            },
        }
        metadata = {"name": f"{one.name}-{ROUTER}", "labels": labels}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class LeaderWorkerSets(StatefulSets):
    """The same with a leader-worker set for each server; its controller makes the headless services."""

    def _first_pod(self, instance: Instance) -> Json:
        group = "leaderworkerset.sigs.k8s.io"
        return {f"{group}/name": self._name(instance), f"{group}/worker-index": "0"}

    def _server(self, instance: Instance) -> Iterator[Json]:
        template = {
            "size": len(instance.nodes),
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": self._pods(instance, "$(LWS_WORKER_INDEX)", []),
        }
        yield {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": self._name(instance), "labels": self._labels(instance.name)},
            "spec": {"replicas": 1, "leaderWorkerTemplate": template},
        }


def folders_of(deployment: Deployment, weights: str = "") -> tuple[list[Json], list[Json]]:
    """Mounts and volumes of a server: its weights, and memory that its processes share. `weights` is another folder of the nodes."""
    if deployment.has_own_weights:
        place, inside, kind = weights or deployment.model, deployment.model, "Directory"
    else:
        place, inside, kind = weights or _CACHE_ON_NODE, CACHE, "DirectoryOrCreate"
    mounts: list[Json] = [
        {"name": "weights", "mountPath": inside, "readOnly": deployment.has_own_weights},
        {"name": "shm", "mountPath": _SHARED_MEMORY},
    ]
    volumes: list[Json] = [
        {"name": "weights", "hostPath": {"path": place, "type": kind}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return mounts, volumes


def gpu_limits(deployment: Deployment, gpus: int, resource: str = "") -> Json:
    """The resources of a container with so many GPUs; `resource` is another name than the platform's."""
    return {"limits": {resource or _RESOURCES[deployment.platform]: gpus}} if gpus else {}


def secret(name: str) -> Json:
    """A variable that the cluster has the value of."""
    kept_in = "huggingface" if name == "HF_TOKEN" else "sglang"
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": kept_in, "key": name, "optional": True}}}


def _escaped(word: str) -> str:
    """Kubernetes fills in `$(NAME)`."""
    return word.replace("$(", "$$(")

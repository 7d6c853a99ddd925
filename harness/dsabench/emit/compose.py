"""A deployment on one machine as a file of Docker Compose."""

from __future__ import annotations

import yaml
from pydantic import JsonValue

from dsabench.emit.deployment import CACHE, HERE, Deployment, Instance, variables_of
from dsabench.runtimes.plan import PlannedProcess


def compose_files(deployment: Deployment) -> dict[str, str]:
    """`compose.yaml`: `docker compose up`."""
    services: dict[str, JsonValue] = {one.name: _server(deployment, one) for one in deployment.instances}
    if deployment.router is not None:
        services["router"] = {
            **_service(deployment, deployment.router),
            "depends_on": {one.name: {"condition": "service_healthy"} for one in deployment.instances},
            "healthcheck": _healthcheck(deployment.router_port, deployment.ready_timeout_s),
        }
    document = {"name": deployment.name, "services": services}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return {"compose.yaml": f"{deployment.comment}# docker compose up\n{text}"}


def _server(deployment: Deployment, instance: Instance) -> dict[str, JsonValue]:
    """All its parts are on one machine and share its network, where each has ports and GPUs of its own."""
    service = _service(deployment, instance.processes[0])
    service["ipc"] = "host"
    service["volumes"] = [
        f"{deployment.model}:{deployment.model}:ro"
        if deployment.has_own_weights
        else f"${{HF_HOME:-${{HOME}}/.cache/huggingface}}:{CACHE}"
    ]
    service["healthcheck"] = _healthcheck(instance.port, deployment.ready_timeout_s)
    return {**service, **_devices(deployment)}


def _service(deployment: Deployment, process: PlannedProcess) -> dict[str, JsonValue]:
    variables = [
        name if value is None else f"{name}={_escaped(value)}" for name, value in variables_of(process).items()
    ]
    return {
        "image": _escaped(deployment.image),
        "command": [_escaped(word) for word in process.argv],
        "environment": list[JsonValue](variables),
        "network_mode": "host",
        "restart": "unless-stopped",
    }


def _escaped(text: str) -> str:
    """Compose fills in `$NAME`."""
    return text.replace("$", "$$")


def _healthcheck(port: int, ready_timeout_s: float) -> dict[str, JsonValue]:
    return {
        "test": ["CMD", "curl", "-fsS", "-o", "/dev/null", f"http://{HERE}:{port}/health"],
        "interval": "10s",
        "timeout": "20s",
        "start_period": f"{ready_timeout_s:.0f}s",
    }


def _devices(deployment: Deployment) -> dict[str, JsonValue]:
    if deployment.platform == "rocm":
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"]}
    if deployment.platform == "npu":
        cards = [f"/dev/davinci{index}" for index in range(deployment.gpus_per_node)]
        return {"devices": [*cards, "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]}
    card: JsonValue = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [card]}}}}

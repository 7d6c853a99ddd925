"""Which files each scheduler takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dsabench.emit.compose import compose_files
from dsabench.emit.deployment import Deployment, Form
from dsabench.emit.kubernetes import helm_files, k8s_files, lws_files
from dsabench.emit.ray import ray_files
from dsabench.emit.shell_scripts import slurm_files
from dsabench.errors import StoreError

FILES: Mapping[Form, Callable[[Deployment], dict[str, str]]] = {
    "compose": compose_files,
    "helm": helm_files,
    "k8s": k8s_files,
    "lws": lws_files,
    "ray": ray_files,
    "slurm": slurm_files,
}
"""Form → from a deployment to the files by name."""


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files by their names, scripts executable; returns their paths.

    Raises:
        StoreError: one cannot be written.

    """
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if text.startswith("#!"):
                path.chmod(0o755)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}: the files were not written") from error
    return [folder / name for name in files]

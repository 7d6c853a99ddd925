"""Container images that the documents name for each accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.runtimes.command import Command, Launch, enclose
from dsabench.sglang.hardware import Accelerator


@dataclass(frozen=True, slots=True)
class Image:
    """One image, and what to know before using it."""

    name: str
    hardware: tuple[str, ...]
    note: str = ""


IMAGES = (
    Image(
        "lmsysorg/sglang:latest", ("h200", "b200", "h20", "h800"), "moves with every release; pin a version to compare"
    ),
    Image("lmsysorg/sglang:v0.5.8-rocm700-mi35x", ("mi355x",), "holds 0.5.8, older than the versions described here"),
    Image(
        "lmsysorg/sglang:v0.5.8-rocm700-mi30x",
        ("mi300x",),
        "holds 0.5.8 without sglang's change 17504; take the newest mi30x tag, or build from source",
    ),
    Image("lmsysorg/sglang:dsv32-a2", ("npu",), "is made for Atlas A2; dsv32-a3 for Atlas A3"),
    Image("lmsysorg/sglang:dsv32-a3", ("npu",), "is made for Atlas A3"),
)


def known_image(device: Accelerator | None) -> Image | None:
    """The first image for the accelerator; without one, the CUDA image. None where none is known."""
    if device is None:
        return IMAGES[0]
    return next((image for image in IMAGES if device.name in image.hardware), None)


def image_for(device: Accelerator | None) -> str | None:
    """Its name."""
    image = known_image(device)
    return None if image is None else image.name


def wrap_sglang(
    argv: Sequence[str],
    env: Mapping[str, str],
    launch: Launch,
    device: Accelerator | None = None,
    host: str | None = None,
) -> Command:
    """`enclose`, with the documents' image where a container names none."""
    platform = "cuda" if device is None else device.platform
    return enclose(argv, env, launch, host, image=image_for(device), platform=platform)

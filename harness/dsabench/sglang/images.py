"""Container images that the documents name for each accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.model.hardware import Accelerator, Platform
from dsabench.runtimes.command import Command, Launch, enclose


@dataclass(frozen=True, slots=True)
class Image:
    """One image, and what to know before using it."""

    name: str
    platform: Platform
    capability: tuple[int, int] | None = None
    """None: for all of the platform."""
    note: str = ""


IMAGES = (
    Image("lmsysorg/sglang:latest", "cuda", None, "moves with every release; pin a version to compare"),
    Image(
        "lmsysorg/sglang:v0.5.8-rocm700-mi35x", "rocm", (9, 5), "holds 0.5.8, older than the versions described here"
    ),
    Image(
        "lmsysorg/sglang:v0.5.8-rocm700-mi30x",
        "rocm",
        (9, 4),
        "holds 0.5.8 without sglang's change 17504; take the newest mi30x tag, or build from source",
    ),
    Image("lmsysorg/sglang:dsv32-a2", "npu", None, "is made for Atlas A2; dsv32-a3 for Atlas A3"),
    Image("lmsysorg/sglang:dsv32-a3", "npu", None, "is made for Atlas A3"),
)


def known_image(device: Accelerator | None) -> Image | None:
    """The first image for the accelerator; without one, the CUDA image. None where none is known."""
    if device is None:
        return IMAGES[0]
    fits = (image for image in IMAGES if image.platform == device.platform)
    return next((image for image in fits if image.capability in {None, device.capability}), None)


def image_for(device: Accelerator | None) -> str | None:
    """Its name."""
    image = known_image(device)
    return None if image is None else image.name


def released_image(device: Accelerator | None, version: str | None) -> str | None:
    """The image of a release where there is one for the accelerator; else the documents' image, None where none is known."""
    if version is not None and (device is None or device.platform == "cuda"):
        return f"lmsysorg/sglang:v{version}"
    return image_for(device)


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

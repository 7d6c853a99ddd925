"""What the id of a measured shape says."""

from __future__ import annotations

from dsabench.errors import InputError
from dsakernels.shape import Shape, parse


def shape_of(shape_id: str) -> Shape:
    """The shape of an id.

    Raises:
        InputError: it is no id of a shape that this version knows.

    """
    try:
        return parse(shape_id)
    except ValueError as error:
        raise InputError(str(error)) from error

"""Versions of the runtime as values that compare, and the ones whose parsers were read."""

from __future__ import annotations

import re
from typing import NamedTuple

import packaging.version

from dsabench.errors import InputError


class Version(NamedTuple):
    """`0.5.12`: what rules and the table of flags go by. A post release or release candidate counts as its release."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


def parse_version(text: str) -> Version:
    """`0.5.12`, `v0.5.12.post1`, `0.5.12rc0`, `0.5.12+cu130`.

    Raises:
        InputError: no version of the form MAJOR.MINOR.PATCH.

    """
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)(?:[.-]?(?:post|rc|dev|a|b)\d*)*(?:\+[\w.-]+)?", text)
    if match is None:
        raise InputError(f"{text}: no version; write 0.5.16")
    return Version(*map(int, match.groups()))


def is_release(asked: str, installed: str) -> bool:
    """Whether two texts name one release: post releases are told apart, builds (`+cu130`) are not.

    Raises:
        InputError: a text that is no version.

    """
    try:
        return packaging.version.Version(asked).public == packaging.version.Version(installed).public
    except packaging.version.InvalidVersion as error:
        raise InputError(f"{error}: write 0.5.16") from error


V9, V10, V11, V12, V13, V14, V15, V16 = (Version(0, 5, patch) for patch in range(9, 17))
V17, V18, V19, V20, V21, V22, V23 = (Version(0, 5, patch) for patch in range(17, 24))

READ = (V9, V10, V11, V12, V13, V14, V15, V16, V17, V18, V19, V20, V21, V22, V23)
"""The versions whose sources were read for the rules."""

OLDEST = V9
"""Older versions are not described; their commands are refused."""

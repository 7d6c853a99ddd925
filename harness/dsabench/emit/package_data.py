"""The line by which a checkout's build takes the tables into its wheel."""

from __future__ import annotations

import re

from dsabench.errors import InputError


def with_tables_listed(project: bytes, pattern: str) -> bytes:
    """pyproject.toml with the pattern among sglang's package data; as it was where setuptools takes such files already.

    Raises:
        InputError: no TOML.

    """
    import tomlkit  # noqa: PLC0415  (only checkouts have one)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(project.decode())
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise InputError(f"pyproject.toml: {error}") from error
    listed = document.get("tool", {}).get("setuptools", {}).get("package-data", {}).get("sglang")
    if listed is None or any(_takes(each, pattern.replace("*", "one")) for each in listed):
        return project
    listed.append(pattern)
    return tomlkit.dumps(document).encode()


def _takes(listed: str, file: str) -> bool:
    """As setuptools globs: `**` is any folders, `*` stays within one."""
    pattern = re.escape(listed).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.fullmatch(pattern, file) is not None

"""Files that are copied into other packages as they are. They import nothing of dsabench."""

from importlib import resources


def payload(name: str) -> str:
    """The text of one of them."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")

"""Text ↔ token ids: what a dataset and the retokenised counts need of a tokenizer."""

from __future__ import annotations

from pathlib import Path

from dsabench.errors import InputError
from dsabench.load.tokenizers.bytewise import Bytewise
from dsabench.load.tokenizers.ids_only import IdsOnly
from dsabench.load.tokenizers.protocol import Message, Tokenizer

BYTES = "bytes"
"""Name of the reference runtime's tokenizer."""


def load_tokenizer(name: str) -> Tokenizer:
    """`bytes`, a folder with `tokenizer.json`, or that file.

    Raises:
        InputError: there is none, it cannot be read, or the extra `tokenizers` is not installed.

    """
    if name == BYTES:
        return Bytewise()
    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"tokenizer {name}: no such file or folder with tokenizer.json (give a local path, `bytes` for the"
            " reference runtime, or --tokenize-prompt with --vocab-size, which needs none)"
        )
    from dsabench.load.tokenizers.huggingface import HuggingFace  # noqa: PLC0415 - only here is the library needed

    return HuggingFace.load(file)


__all__ = ["BYTES", "Bytewise", "IdsOnly", "Message", "Tokenizer", "load_tokenizer"]

"""Text ↔ token ids: what a dataset and the retokenised counts need of a tokenizer."""

from __future__ import annotations

import os
from pathlib import Path

from dsabench.errors import InputError
from dsabench.load.tokenizers.bytewise import Bytewise
from dsabench.load.tokenizers.ids_only import IdsOnly
from dsabench.load.tokenizers.protocol import Message, Tokenizer

BYTES = "bytes"
"""Name of the reference runtime's tokenizer."""


def load_tokenizer(name: str) -> Tokenizer:
    """`bytes`, a folder with `tokenizer.json`, that file, or a model's name on the hub that is in the local cache.

    Raises:
        InputError: there is none, it cannot be read, or the extra `tokenizers` is not installed.

    """
    if name == BYTES:
        return Bytewise()
    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        kept = _in_hub_cache(name)
        if kept is None:
            raise InputError(
                f"tokenizer {name}: no such file or folder with tokenizer.json, nor in the hub's local cache (give a"
                " path, `bytes` for the reference runtime, or --tokenize-prompt with --vocab-size, which needs none)"
            )
        file = kept
    from dsabench.load.tokenizers.huggingface import HuggingFace  # noqa: PLC0415 - only here is the library needed

    return HuggingFace.load(file)


def _in_hub_cache(name: str) -> Path | None:
    """Where huggingface_hub keeps what was downloaded: models--ORG--NAME/snapshots/REVISION; the newest."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    if name.startswith(("/", ".")) or name.count("/") > 1:
        return None
    found = (cache / f"models--{name.replace('/', '--')}").glob("snapshots/*/tokenizer.json")
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


__all__ = ["BYTES", "Bytewise", "IdsOnly", "Message", "Tokenizer", "load_tokenizer"]

"""A `tokenizer.json` through the `tokenizers` library; chat templates through jinja2's sandbox. Never transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dsabench.errors import InputError
from dsabench.load.tokenizers.protocol import Message

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """Behaves as transformers' fast tokenizer does on the calls that bench_serving makes."""

    tokenizer: tokenizers.Tokenizer
    special_tokens: dict[str, str]
    """`bos_token`, `eos_token`, … as in tokenizer_config.json."""
    template: str | None

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read tokenizer.json and, where they lie beside it, tokenizer_config.json and chat_template.jinja."""
        try:
            import tokenizers  # noqa: PLC0415
        except ImportError as error:
            raise InputError(
                f"tokenizer {file}: the package tokenizers is not installed: pip install tokenizers"
            ) from error
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except (
            Exception
        ) as error:  # its Rust code raises builtins.Exception, and nothing narrower, for a file it cannot read
            raise InputError(f"tokenizer {file}: {' '.join(str(error).split())[:200]}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        config = _read_config(file.with_name("tokenizer_config.json"))
        beside = file.with_name("chat_template.jinja")
        template = beside.read_text(encoding="utf-8") if beside.is_file() else _template(config.get("chat_template"))
        return cls(tokenizer, _special_tokens(config), template)

    @property
    def vocab_size(self) -> int:
        """Without added tokens."""
        return self.tokenizer.get_vocab_size(with_added_tokens=False)

    @property
    def special_tokens_added(self) -> int:
        """By the post-processor, to a single text."""
        return self.tokenizer.num_special_tokens_to_add(False)

    @property
    def bos_token(self) -> str | None:
        """From tokenizer_config.json."""
        return self.special_tokens.get("bos_token")

    def ids(self) -> list[int]:
        """Added tokens included."""
        return sorted(self.tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, text: str) -> list[int]:
        """With special tokens."""
        return self.tokenizer.encode(text).ids

    def count(self, text: str) -> int:
        """Without special tokens."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens are kept, spaces are not cleaned up."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def render_chat(self, messages: Sequence[Message]) -> str | None:
        """As transformers renders it: jinja2's immutable sandbox, blocks trimmed, loop controls on."""
        if self.template is None:
            return None
        try:
            import jinja2  # noqa: PLC0415
            import jinja2.ext  # noqa: PLC0415
            import jinja2.sandbox  # noqa: PLC0415
        except ImportError as error:
            raise InputError(
                "chat templates need the package jinja2, which is not installed: pip install jinja2"
            ) from error
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = datetime.now().astimezone().strftime
        try:
            return environment.from_string(self.template).render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self.special_tokens
            )
        except jinja2.TemplateError as error:
            raise InputError(f"chat template: {' '.join(str(error).split())[:200]}") from error


def _raise(message: str) -> None:
    import jinja2  # noqa: PLC0415

    raise jinja2.TemplateError(message)


def _to_json(value: object, *, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _template(value: object) -> str | None:
    """A template, or of several named ones the default."""
    match value:
        case str():
            return value
        case list():
            named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
            return _template(named.get("default"))
    return None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    found = {}
    for name in names:
        match config.get(name):
            case str(text) | {"content": str(text)}:
                found[name] = text
    return found

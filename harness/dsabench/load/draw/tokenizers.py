"""Text to token ids and back: a tokenizer.json, the reference runtime's bytes, or none.

A tokenizer.json goes through the `tokenizers` library, a chat template through jinja2's sandbox; never transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from dsabench.errors import InputError
from dsabench.machine.model_files import in_hub_cache

if TYPE_CHECKING:
    import tokenizers


Message = Mapping[str, object]
"""A chat message as OpenAI's API has it: role, content."""


class Tokenizer(Protocol):
    """Text to ids and back, with the counts that bench_serving's draws rest on."""

    @property
    def vocab_size(self) -> int:
        """Ids without those added later (transformers' `vocab_size`)."""

    @property
    def special_tokens_added(self) -> int:
        """How many `encode` puts around a text by itself."""

    @property
    def bos_token(self) -> str | None:
        """Text of the token that begins a sequence."""

    def ids(self) -> list[int]:
        """Every id of the vocabulary, added ones included, ascending."""

    def encode(self, text: str) -> list[int]:
        """Ids, with the special tokens that the tokenizer adds."""

    def count(self, text: str) -> int:
        """Tokens of a text, without added special ones."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text; special tokens are kept."""

    def render_chat(self, messages: Sequence[Message]) -> str | None:
        """The prompt of a conversation, ready for an answer; None where the tokenizer has no chat template."""


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """Ids 0 to 255 are bytes. The runtime's three special tokens have no text and are never drawn."""

    vocab_size: int = 256
    special_tokens_added: int = 0
    bos_token: None = None

    def ids(self) -> list[int]:
        """0 … 255."""
        return list(range(self.vocab_size))

    def encode(self, text: str) -> list[int]:
        """UTF-8; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", "replace"))

    def count(self, text: str) -> int:
        """UTF-8 bytes."""
        return len(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """What is no UTF-8 becomes U+FFFD, which is three bytes again."""
        return bytes(ids).decode("utf-8", "replace")

    def render_chat(self, messages: Sequence[Message]) -> None:
        """No template of its own, so that mooncake's draw is that of a tokenizer without one."""
        del messages

    def runtime_chat(self, messages: Sequence[Message]) -> str:
        """As the reference runtime puts messages together (reference/openai_messages.py, chat_prompt)."""
        return "".join(f"<|{message.get('role')}|>{_text(message)}\n" for message in messages) + "<|assistant|>"


def count_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> int | None:
    """Tokens of a conversation's prompt; None where the tokenizer has no chat template."""
    render = tokenizer.runtime_chat if isinstance(tokenizer, ByteTokenizer) else tokenizer.render_chat
    rendered = render(messages)
    return None if rendered is None else tokenizer.count(rendered)


def _text(message: Message) -> str:
    """The content; of parts their texts together."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


@dataclass(frozen=True, slots=True)
class NoTokenizer:
    """`--tokenize-prompt --vocab-size N`."""

    vocab_size: int
    special_tokens_added: int = 0
    bos_token: None = None

    def ids(self) -> list[int]:
        """0 … vocab_size − 1."""
        return list(range(self.vocab_size))

    def encode(self, text: str) -> NoReturn:
        """Cannot."""
        del text
        raise InputError("this dataset has text, which needs a tokenizer: give --tokenizer instead of --vocab-size")

    count = encode

    def decode(self, ids: Sequence[int]) -> NoReturn:
        """Cannot."""
        del ids
        raise InputError("prompts of text need a tokenizer: give --tokenizer, or --tokenize-prompt to send ids")

    def render_chat(self, messages: Sequence[Message]) -> None:
        """No template."""
        del messages


@dataclass(frozen=True, slots=True)
class HuggingFaceTokenizer:
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
            from datetime import datetime  # noqa: PLC0415

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


BYTES = "bytes"
"""Name of the reference runtime's tokenizer."""


def load_tokenizer(name: str) -> Tokenizer:
    """`bytes`, a folder with `tokenizer.json`, that file, or a model's name on the hub that is in the local cache.

    Raises:
        InputError: there is none, it cannot be read, or the extra `tokenizers` is not installed.

    """
    if name == BYTES:
        return ByteTokenizer()
    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        kept = in_hub_cache(name, "tokenizer.json")
        if not kept:
            raise InputError(
                f"tokenizer {name}: no such file or folder with tokenizer.json, nor in the hub's local cache (give a"
                " path, `bytes` for the reference runtime, or --tokenize-prompt with --vocab-size, which needs none)"
            )
        file = kept[-1]
    from dsabench.load.draw.tokenizers import HuggingFaceTokenizer  # noqa: PLC0415 - only here is the library needed

    return HuggingFaceTokenizer.load(file)

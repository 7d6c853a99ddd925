"""Explain pydantic's errors in one line each: what is there, what is allowed, what was probably meant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from dsabench.config.files import FORMS, Form, allowed_keys, choices, nullable
from dsabench.config.yaml_file import KeyPath, Plain, YamlFile
from dsabench.errors import ConfigError, nearest

Mistakes = Iterator[ConfigError]

_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "mapping_type": "a mapping of keys",
    "model_type": "a mapping of keys",
}

_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}

_FIXED = {
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "must be letters, digits, '.', '_' or '-', begin with a letter or digit, and have at most 100",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


def parse_sections(source: YamlFile, form: Form) -> tuple[dict[str, Any], list[ConfigError]]:
    """Validate each top-level key separately, so that one wrong section does not hide mistakes in another.

    Returns the correct sections (with defaults) and every mistake.
    """
    fields = FORMS[form].model_fields
    sections: dict[str, Any] = {}
    found: list[ConfigError] = []
    unknown = [key for key in source.data if key not in fields]
    meant = {nearest(key, fields) for key in unknown}
    for key, field in fields.items():
        if key not in source.data:
            if field.is_required():
                if key not in meant:  # misspelt, not missing: report one mistake once
                    found.append(source.error(f"missing key {key!r}"))
            else:
                sections[key] = field.get_default(call_default_factory=True, validated_data={})
            continue
        # In JSON mode validation is strict, but a list may become a tuple.
        text = json.dumps(source.data[key])
        try:
            sections[key] = _adapter(form, key).validate_json(text, strict=True)
        except ValidationError as error:
            found += _translate(source, form, key, error)
    found += [source.error(unknown_word("key", key, fields), (key,)) for key in unknown]
    return sections, found


@cache
def _adapter(form: Form, key: str) -> TypeAdapter[Any]:
    """Cached, because describing every knob takes a while."""
    return TypeAdapter(FORMS[form].model_fields[key].rebuild_annotation())


def unknown_word(what: str, word: str, allowed: Iterable[str]) -> str:
    """`unknown key 'modle'; did you mean model? (allowed: …)`. A long list is cut to the nearest names."""
    names = list(allowed)
    if word in names:  # a key of another form of the same section
        return f"{what} {shown(word)} does not fit the other keys here"
    near = nearest(word, names)
    hint = f"; did you mean {near}?" if near else ""
    if len(names) > 24:
        names = [*get_close_matches(word, names, n=6, cutoff=0.3), "…"]
    return f"unknown {what} {shown(word)}{hint} (allowed: {', '.join(names) or 'none'})"


def shown(value: object) -> str:
    """A value as the user wrote it, shortened."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…")
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping of keys"
    return json.dumps(value)


def _translate(source: YamlFile, form: Form, section: str, error: ValidationError) -> list[ConfigError]:
    found: list[tuple[KeyPath, ErrorDetails]] = [
        (_locate(source.data, (section, *details["loc"])), details)
        for details in error.errors(include_url=False)
    ]  # fmt: skip
    meant = {
        (path[:-1], nearest(str(path[-1]), allowed_keys(form, path[:-1])))
        for path, details in found
        if details["type"] == "extra_forbidden"
    }
    return [
        source.error(_words(form, path, details), path)
        for path, details in found
        # A list with only wrong items is also reported as too short. The lines of its items are clearer.
        if not (details["type"] == "too_short" and any(p[: len(path)] == path and len(p) > len(path) for p, _ in found))
        # A misspelt key is also reported as missing. Its own line names the right key.
        and not (details["type"] == "missing" and (path, details["loc"][-1]) in meant)
    ]


def _locate(data: Mapping[str, Plain], loc: tuple[int | str, ...]) -> KeyPath:
    """Pydantic's location without parts that are not in the file: tags of unions, and a missing key."""
    path: list[str | int] = []
    node: object = data
    for part in loc:
        if (isinstance(node, Mapping) and part in node) or (
            isinstance(node, list) and isinstance(part, int) and part < len(node)
        ):
            path.append(part)
            node = node[part]  # type: ignore[index]
    return tuple(path)


def _words(form: Form, path: KeyPath, details: ErrorDetails) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"must be {words} {context[key]:g}, not {shown(given)}"
    if kind in _WANTED:
        return _wrong_type(form, path, details)
    match kind:
        case "extra_forbidden":
            said = _unknown_key(str(path[-1]), allowed_keys(form, path[:-1]))
        case "missing":
            said = f"missing key {details['loc'][-1]!r}"
        case "literal_error":
            said = _not_a_choice(given, choices(form, path))
        case "value_error":
            said = str(context["error"])
        case _:
            said = _FIXED.get(kind) or details["msg"][:1].lower() + details["msg"][1:]
    return said


def _unknown_key(key: str, allowed: tuple[str, ...]) -> str:
    """Beside knobs a key that resembles none of them is probably an argument of the runtime."""
    if "args" not in allowed or any(one.startswith(key) for one in allowed) or get_close_matches(key, allowed, 1, 0.75):
        return unknown_word("key", key, allowed)
    return f"unknown knob {shown(key)}; an argument of sglang stands below args: {{{key}: …}}"


def _not_a_choice(given: object, allowed: tuple[str, ...]) -> str:
    near = nearest(given, allowed) if isinstance(given, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"must be {_listed(allowed)}, not {shown(given)}{hint}"


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _wrong_type(form: Form, path: KeyPath, details: ErrorDetails) -> str:
    wanted, given = _WANTED[details["type"]], details["input"]
    if details["loc"][-1:] == ("inline",):
        wanted = "the name of a sweep or a mapping of keys"
    # The value of a variable may be a token, so only its type is shown.
    written = _kind(given) if "env" in path else shown(given)
    null = " or null" if nullable(form, path) else ""
    return f"must be {wanted}{null}, not {written}{_type_hint(path, wanted, given)}"


def _kind(given: object) -> str:
    names = {bool: "a truth value", int: "a number", float: "a number", str: "text", type(None): "null"}
    return names.get(type(given)) or shown(given)


def _type_hint(path: KeyPath, wanted: str, given: object) -> str:
    """What to write instead, if that is clear."""
    if given is None and "base" in path:
        return "; leave the key out for the default"
    if wanted == "text" and isinstance(given, (bool, int, float)):
        return "; put it in quotes"
    if wanted == "true or false" and isinstance(given, str) and given.lower() in {"yes", "no", "on", "off", "y", "n"}:
        return "; YAML 1.2 reads that as text"
    if wanted == "a whole number" and isinstance(given, float) and given.is_integer() and abs(given) < 1e15:
        return f"; write {int(given)}"
    if wanted.endswith("number") and isinstance(given, str) and _is_number(given):
        return "; write it without quotes and separators"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)  # accepts 1_000, as YAML 1.1 did
    except ValueError:
        return False
    return True

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.config.yaml_file import YamlPosition, parse_yaml, read_yaml
from dsabench.errors import ConfigError


def refusal(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text if isinstance(text, bytes) else text.encode(), "f.yaml")
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_reads_data_and_the_place_of_every_key() -> None:
    source = parse_yaml(b"a: 1\nb:\n  - x\n  - {c: [true, null]}\n", "f.yaml")
    assert source.data == {"a": 1, "b": ["x", {"c": [True, None]}]}
    assert source.place(("a",)) == YamlPosition(1, 1)
    assert source.place(("b", 1)) == YamlPosition(4, 5)
    assert source.place(("b", 1, "c")) == YamlPosition(4, 6)
    assert source.place(("b", 1, "missing", 3)) == YamlPosition(4, 5)
    assert source.place(("missing",)) == YamlPosition(1, 1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("off", "off"), ("yes", "yes"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"), ("1e3", 1000.0), ("1.5e-3", 0.0015), (".5", 0.5), ("0x10", 16), ("0o17", 15), ("-7", -7),
        ("true", True), ("False", False), ("~", None), ("", None), ("'1'", "1"), ("!!str 5", "5"), ("=", "="),
        ("!!float 5", 5.0),
    ],
)  # fmt: skip
def test_follows_the_core_schema_of_yaml_1_2(written: str, meant: object) -> None:
    read = parse_yaml(f"a: {written}\n".encode(), "f.yaml").data["a"]
    assert read == meant
    assert type(read) is type(meant)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("\n- a\n- b\n", 2, "not a list"),
        ("just text\n", 1, "not a single value"),
        ("a: 1\nb:\n\t- 2\n", 3, "tab"),
        ("a: 1\nb: 2\na: 3\n", 3, "twice; first in line 1"),
        ("a: {b: 1, b: 2}\n", 1, "twice"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: [1,\n", 1, "not valid YAML"),
        ("a: 'x\n", 1, "that begins in line 1"),
        ("a: *b\n", 1, "alias"),
        ("a: @x\n", 1, "quote"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys"),
        ("a: 1\n1: 2\n", 2, "the key 1 is read as a number"),
        ("[a]: 2\n", 1, "must be text"),
        ("a: 010\n", 1, "octal"),
        ("a: 99999999999999999999\n", 1, "64 bits"),
        ("a: " + "9" * 5000, 1, "64 bits"),
        ("a: !!python/object:os.system x\n", 1, "not supported"),
        ("a: !!int x\n", 1, "does not fit"),
        ("a: !!binary x\n", 1, "not supported"),
        ("a: !!set {x}\n", 1, "not supported"),
        ("!!set {x}\n", 1, "not supported"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8 (byte 0xff)"),
        (b"a: 1\nb: \x07\n", 2, "control character U+0007"),
        ("a: 1\nb: x\x85\n", 2, "control character U+0085"),
        ("a: 1\r\nb: x\ry", 2, "control character U+000D"),
        ("a: &x [*x]\n", 1, "anchor"),
        ("%YAML 3.0\n---\na: 1\n", 1, "not valid YAML"),
    ],
)
def test_refuses_in_one_line_with_its_number(text: str | bytes, line: int, words: str) -> None:
    error = refusal(text)
    assert (error.line, error.file) == (line, "f.yaml")
    assert words in error.message


def test_an_alias_is_expanded_and_keeps_its_places() -> None:
    source = parse_yaml(b"a: &x {b: 1}\nc:\n  *x\n", "f.yaml")
    assert source.data["c"] == {"b": 1}
    assert source.place(("c",)).line == 2


def test_refuses_what_expands_to_too_much() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
    )
    assert "expand to too much" in refusal(bomb).message
    assert "nested deeper" in refusal("[" * 500_000).message
    assert "nested deeper" in refusal("- " * 500_000).message
    assert "nested deeper" in refusal("{a: " * 200_000).message
    assert "larger than 1 MiB" in refusal("#" * ((1 << 20) + 1)).message
    assert "over 100000 values" in refusal("a: [" + "1," * 500_000 + "]").message


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml")


def test_what_the_user_wrote_cannot_break_the_line() -> None:
    source = parse_yaml(b'"a\\nb\\x1b[31m": 1\n', "f.yaml")
    (key,) = source.data
    assert str(source.error(f"unknown {key}", (key,))) == r"f.yaml:1: a\nb\x1b[31m: unknown a\nb\x1b[31m"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    source = parse_yaml("\ufeffa: 1\r\nb: 2\r\n".encode(), "f.yaml")
    assert source.data == {"a": 1, "b": 2}
    assert source.place(("b",)).line == 2

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.sglang.accepts import from_table, known_versions
from dsabench.sglang.versions import OLDEST, Version, parse_version

RENDERED = json.loads((Path(__file__).parents[2] / "wheels/rendered_flags.json").read_text())


def test_versions_compare_and_a_post_release_is_its_release() -> None:
    assert parse_version("0.5.9") < parse_version("v0.5.10") < parse_version("0.5.12.post1") < parse_version("0.6.0rc1")
    assert parse_version("0.5.12.post1+cu130") == Version(0, 5, 12)
    assert str(Version(0, 5, 16)) == "0.5.16"


@pytest.mark.parametrize("text", ["", "latest", "0.5", "0.5.x", "0.5."])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no version"):
        parse_version(text)


def test_the_table_has_every_release_from_the_oldest_that_is_described() -> None:
    assert known_versions()[0] == OLDEST
    assert [version.patch for version in known_versions()] == [*range(9, 24)]


def test_a_version_without_a_table_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"0\.5\.24: .*0\.5\.9 to 0\.5\.23.* or take 0\.5\.23$"):
        from_table(Version(0, 5, 24))
    with pytest.raises(InputError, match=r"take 0\.5\.9$"):
        from_table(Version(0, 5, 8))


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [
        ("--nsa-prefill-backend", 9, 19),
        ("--dsa-prefill-backend", 13, 23),
        ("--enable-prefill-cp", 14, 23),
        ("--enable-hisparse", 10, 23),
        ("--attn-dp-size", 22, 23),
        ("--cuda-graph-max-bs", 9, 19),
        ("--collect-tokens-histogram", 9, 19),
    ],
)
def test_flags_come_and_go_when_the_sources_say(flag: str, first: int, last: int) -> None:
    having = [version.patch for version in known_versions() if flag in from_table(version).flags]
    assert (having[0], having[-1]) == (first, last)


def test_a_renamed_flag_is_an_alias_and_a_dropped_one_a_no_op() -> None:
    accepted = from_table(Version(0, 5, 16))
    assert accepted.flags["--nsa-prefill-backend"].state == "alias"
    assert accepted.flags["--collect-tokens-histogram"].state == "no-op"
    assert accepted.flags["--dsa-prefill-backend"].dest == accepted.flags["--nsa-prefill-backend"].dest
    assert "SGLANG_DSA_FUSE_TOPK" in accepted.variables


def test_abbreviations_are_completed_as_argparse_does() -> None:
    accepted = from_table(Version(0, 5, 12))
    assert accepted.expand("--tp") == "--tp-size"
    assert accepted.expand("--nccl-init") == "--nccl-init-addr"
    assert accepted.expand("--ep") == "--ep"
    assert accepted.expand("--pp") is None
    assert accepted.expand("--no-such") is None


@pytest.mark.parametrize("version", RENDERED)
def test_every_flag_shown_to_a_wheels_parser_is_in_the_table(version: str) -> None:
    accepted = from_table(parse_version(version))
    assert [flag for flag in RENDERED[version]["flags"] if flag not in accepted.flags] == []

"""`dsabench bench --help` in 80 columns."""

from __future__ import annotations

import pytest

from dsabench.cli.bench_flags import flag_tables, make_parser, parse_flags


def test_the_help_looks_like_that_of_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_flags(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "╭─ Server ─" in shown
    assert "Exit codes: 0 done" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for flags in flag_tables(make_parser()).values():
        for flag, _ in flags:
            assert f"  {flag} " in shown


def test_every_flag_has_a_meaning() -> None:
    for title, flags in flag_tables(make_parser()).items():
        assert [flag for flag, meaning in flags if not meaning or meaning.startswith("(")] == [], title


def test_defaults_and_choices_are_said_once() -> None:
    said = {flag: meaning for flags in flag_tables(make_parser()).values() for flag, meaning in flags}
    assert said["--num-prompts"] == "requests to send (default 1000)"
    assert said["--arrivals"] == "spacing at a finite rate: poisson, constant (default poisson)"
    assert said["--flush-cache"] == "empty the server's prefix cache after the warm-up"
    assert all(meaning.count("default") <= 1 for meaning in said.values())

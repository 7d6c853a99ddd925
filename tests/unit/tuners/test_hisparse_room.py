from __future__ import annotations

import re
from pathlib import Path

import hisparse_room

PAGE = hisparse_room.ROOT / "results" / "h200" / "hisparse" / "README.md"


def test_the_paces_put_every_measured_run_together_again(capsys) -> None:
    hisparse_room.main()
    errors = [float(found) for found in re.findall(r"([+-][\d.]+)%$", capsys.readouterr().out, re.MULTILINE)]
    assert len(errors) == 20
    assert max(map(abs, errors)) <= 1.6


def test_the_page_says_what_the_command_says(capsys) -> None:
    hisparse_room.main()
    expected = capsys.readouterr().out.partition("expected:")[2]
    rates, gains = re.findall(r"([\d,]+) tokens/s", expected), re.findall(r"ratio 8 against .*?: (\+[\d.]+)%", expected)
    assert len(rates) == 8
    assert len(gains) == 6
    page = Path(PAGE).read_text(encoding="utf-8")
    assert [figure for figure in (*rates, *gains) if figure not in page] == []

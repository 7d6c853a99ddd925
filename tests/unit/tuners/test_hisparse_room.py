from __future__ import annotations

import re

import hisparse_room


def test_the_paces_put_every_measured_run_together_again(capsys) -> None:
    hisparse_room.main()
    errors = [float(found) for found in re.findall(r"([+-][\d.]+)%$", capsys.readouterr().out, re.MULTILINE)]
    assert len(errors) == 20
    assert max(map(abs, errors)) <= 1.6

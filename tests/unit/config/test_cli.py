from __future__ import annotations

import json

import pytest

from dsabench.cli.config import app
from dsabench.config.files import json_schema

from .conftest import MINIMAL, Write


def run(*argv: str) -> int:
    code = app(args=list(argv), standalone_mode=False)
    return code if isinstance(code, int) else 0


def test_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema("config")
    assert run("schema", "--of", "sweep") == 0
    assert json.loads(capsys.readouterr().out) == json_schema("sweep")


def test_check_prints_ok_or_every_mistake(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(MINIMAL), write(MINIMAL + "budgt: 1\nproposr: 2\n", "bad.yaml")
    assert run("check", str(good), "local") == 0
    assert capsys.readouterr().out == f"{good}: OK\nlocal: OK\n"
    assert run("check", str(good), str(bad), "nowhere") == 2
    out, err = capsys.readouterr()
    assert out == f"{good}: OK\n"
    assert [line.partition(": ")[0] for line in err.splitlines()] == [f"{bad}:5", f"{bad}:6", "nowhere"]


def test_check_as_json(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(MINIMAL), write(MINIMAL + "name: 1\n", "bad.yaml")
    assert run("check", "--json", str(good)) == 0
    assert json.loads(capsys.readouterr().out) == [{"file": str(good), "errors": []}]
    assert run("check", "--json", str(bad)) == 2
    assert json.loads(capsys.readouterr().out) == [
        {
            "file": str(bad),
            "errors": [
                {"file": str(bad), "line": 5, "key": "name", "message": "the key stands twice; first in line 1"}
            ],
        }
    ]

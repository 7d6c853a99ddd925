"""`report --serve`: the site on loopback, which follows a journal."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from dsabench.cli.main import run
from dsabench.results.journal import Journal
from factories import make_record


def page(address: str) -> tuple[str, dict[str, str]]:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode(), dict(answer.headers)


def test_the_site_follows_the_journal_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "results")
    (tmp_path / "results").mkdir()
    words = [
        "report",
        "--results",
        str(tmp_path / "results"),
        "--out",
        str(tmp_path / "site"),
        "--serve",
        "--port",
        "0",
    ]
    with subprocess.Popen([sys.executable, "-m", "dsabench", *words], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        address = re.match(r"(http://127\.0\.0\.1:\d+/index\.html) ", served.stdout.readline())[1]
        for number in (1, 2):  # a sweep that begins after the server, and goes on
            journal.append(make_record(occasion=number))
            assert "1 studies" in served.stdout.readline()
            end_s = time.monotonic() + 60
            while f"{number} record" not in page(address)[0] and time.monotonic() < end_s:
                time.sleep(0.05)
        shown, headers = page(address)
        assert "<html" in shown
        assert (headers["Refresh"], headers["Cache-Control"]) == ("5", "no-store")
        served.send_signal(signal.SIGINT)
        assert served.wait(timeout=60) == 0


def test_a_taken_port_is_one_line(tmp_path: Path, capsys) -> None:
    Journal(tmp_path).append(make_record())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "s"), "--serve", "--port", port]) == 2
    assert f"--port {port}: Address already in use; name another port" in capsys.readouterr().err

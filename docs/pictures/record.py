"""Record what a command prints on a terminal of 80 columns as an SVG.

python docs/pictures/record.py docs/pictures/sweep.svg dsabench sweep configs/local.yaml --results results/reference-cpu --conclude
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 80


def main(picture: str, *words: str) -> None:
    """Run the command in a pseudo terminal, pass its output on, and draw all of it."""
    os.environ |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    output = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        output.extend(data)
        return data

    pty.spawn(words, read)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(f"[bold]$ {shlex.join(words)}[/bold]", highlight=False, soft_wrap=True)
    console.print(Text.from_ansi(output.decode(errors="replace").replace("\r\n", "\n")), overflow="fold")
    drawn = console.export_svg(title="dsabench", font_aspect_ratio=0.61)
    # Without rich's web fonts: a picture asks no network.
    Path(picture).write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

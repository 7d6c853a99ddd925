"""Shows every command line that we write to the parsers of the wheels, and records which flags they took.

    PYTHONPATH=harness:kernels python tests/wheels/check_flags.py FOLDER_WITH_WHEELS [PYTHON]

PYTHON runs the parsers and is best an interpreter with msgspec alone (see make_parsers.py); this one needs dsabench.
Exits 1 where a parser refuses anything. `rendered_flags.json` is what CI compares with, where there are no wheels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from command_lines import CHECKED, command_lines

from dsabench.sglang.accepts import from_table
from dsabench.sglang.versions import parse_version
from wheels import wheels_in

TARGET = Path(__file__).with_name("rendered_flags.json")
WRONG = (["--no-such-flag"], ["--kv-cache-dtype", "int3"], ["--tp-size", "eight"], ["--pp", "2"])
"""What a parser that is awake refuses; `--pp` is an ambiguous abbreviation."""


def main(folder: Path, python: str) -> int:
    refused = 0
    result = {}
    wheels = {wheel.version: wheel for wheel in wheels_in(folder)}
    for version in CHECKED:
        lines = list(command_lines(from_table(parse_version(version))))
        wrong = [["--model-path", "m", *words] for words in WRONG]
        verdicts = wheels[version].ask([*(words for _, words in lines), *wrong], python)["verdicts"]
        if not all(verdicts[len(lines) :]):
            sys.exit(f"{version}: the parser took a wrong command line, so its word is worth nothing")
        for (label, _), verdict in zip(lines, verdicts[: len(lines)], strict=True):
            if verdict is not None:
                refused += 1
                print(f"{version}: {label}: {verdict}")
        flags = sorted({word for _, words in lines for word in words if word.startswith("--")})
        result[version] = {"wheel": wheels[version].sha256, "command_lines": len(lines), "flags": flags}
        print(
            f"{version}: {len(lines)} command lines with {len(flags)} flags, {sum(map(bool, verdicts[: len(lines)]))} refused"
        )
    if not refused:
        TARGET.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else sys.executable))

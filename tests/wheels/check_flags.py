"""Shows every command line that we write to the parsers of the releases, and records which flags they took.

    PYTHONPATH=harness:kernels python tests/wheels/check_flags.py

Each release in `command_lines.CHECKED` has to be added (`dsabench runtime add sglang==VERSION`). Exits 1 where a parser
refuses anything. `rendered_flags.json` is what CI compares with, where there are no wheels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from command_lines import CHECKED, command_lines

from dsabench.model.hardware import HARDWARE
from dsabench.sglang.accepts import from_table
from dsabench.sglang.model_config import config_json
from dsabench.sglang.resolve.client import ArgumentCase, ArgumentProcess, source_of
from dsabench.sglang.resolve.releases import added_release
from dsabench.sglang.versions import parse_version

TARGET = Path(__file__).with_name("rendered_flags.json")
WRONG = (["--no-such-flag"], ["--kv-cache-dtype", "int3"], ["--tp-size", "eight"], ["--pp", "2"])
"""What a parser that is awake refuses; `--pp` is an ambiguous abbreviation."""


def main() -> int:
    refused = 0
    result = {}
    for version in CHECKED:
        release = added_release(version)
        if release is None:
            sys.exit(f"sglang {version} was not added")
        process = ArgumentProcess(source_of(release), HARDWARE["h200"])
        parsed = parse_version(version)
        lines = list(command_lines(from_table(parsed)))
        words = [*(own for _, own in lines), *(["--model-path", "m", *own] for own in WRONG)]
        model = {"m": config_json("v3.2", parsed) or {}}
        answers = process.ask([ArgumentCase(tuple(own), {}, model) for own in words])
        process.close()
        verdicts = [answer.text if answer.kind == "argparse" else None for answer in answers]
        if process.failed or not all(verdicts[len(lines) :]):
            sys.exit(f"{version}: the parser took a wrong command line, so its word is worth nothing")
        for (label, _), verdict in zip(lines, verdicts[: len(lines)], strict=True):
            if verdict is not None:
                refused += 1
                print(f"{version}: {label}: {verdict}")
        flags = sorted({word for _, own in lines for word in own if word.startswith("--")})
        result[version] = {"wheel": release.sha256, "command_lines": len(lines), "flags": flags}
        print(
            f"{version}: {len(lines)} command lines with {len(flags)} flags, {sum(map(bool, verdicts[: len(lines)]))} refused"
        )
    if not refused:
        TARGET.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the launch commands of the source documents as goldens: one JSON file per document, of argv and environment.

    python tests/golden/recipes/read_documents.py FOLDER_WITH_DOCUMENTS

A command is taken from the document's text and run by bash with nothing but functions named like the programs, which
write their arguments down: variables, quotes and continuation lines mean what they mean to a shell. Placeholders
(`$MASTER_ADDR`, `<HEAD_NODE_IP>`) stand for themselves. Knows nothing of dsabench, and writes none of the documents'
sentences. The command generator of the cookbook is run by node, over all its choices.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

HERE = Path(__file__).parent
VERSIONS = {"000": "0.5.12", "001": "0.5.10", "002": "0.5.9", "003": "0.5.9", "004": "0.5.10"}
"""The release that each document speaks of: the defaults it states hold in that one (003 names it; its Blackwell
figures are older than any release described here)."""

_STARTS = re.compile(r"^\s*(?:python3? -m sglang(?:\.launch_server|_router\.launch_router)\b|sglang serve\b)")
_PLACEHOLDERS = ("LOCAL_IP", "PORT", "HOST", "DIST_PORT", "PREFILL_ADDR", "DECODE_ADDR", "MAPPED_MODEL_PATH")
_PLACEHOLDERS += ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOG_DIR")

_PROGRAMS = """
note() {
  printf '%s\\0' "$@" $'\\1' >> "$NOTED_WORDS"
  export -p | grep -o 'SGLANG_.*' >> "$NOTED_SETTINGS"
  echo --- >> "$NOTED_SETTINGS"
}
python() { note python "$@"; }
python3() { note python "$@"; }
sglang() { note sglang "$@"; }
tee() { :; }
"""


def main(folder: Path) -> None:
    for prefix, version in VERSIONS.items():
        (document,) = folder.glob(f"{prefix}_*.txt")
        text = document.read_text()
        commands = [entry for script in scripts_of(text) for entry in run(script)] or from_flags(text)
        commands += tips(text)
        golden = [
            {"id": f"{prefix}-{index:02}", "version": version, **entry} for index, entry in enumerate(commands, 1)
        ]
        write(HERE / f"{prefix}.json", golden)
        print(f"{prefix}: {len(golden)} commands")
        if "generateCommand" in text:
            write(HERE / "generator.json", generated(text))


def write(file: Path, entries: list[dict[str, Any]]) -> None:
    """One entry a line."""
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    file.write_text(f"[\n{lines}\n]\n")


def scripts_of(text: str) -> Iterator[str]:
    """Pieces of shell that launch something, in order: whole fenced blocks where there are any."""
    fenced = re.findall(r"```(?:bash|shell)?[^\n]*\n(.*?)```", text, flags=re.DOTALL)
    for block in fenced or [text]:
        if "sglang_args=$(echo serve" in block:
            yield block
        elif any(_STARTS.match(line) for line in block.splitlines()):
            yield from single_commands(block)


def single_commands(block: str) -> Iterator[str]:
    """Each command with the exports right before it; a line goes on only where the next one begins with a flag."""
    lines = block.splitlines()
    exports: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith("export "):
            exports.append(line)
        elif _STARTS.match(line):
            words = [line]
            while words[-1].rstrip().endswith("\\") and index < len(lines) and lines[index].lstrip().startswith("--"):
                words.append(lines[index])
                index += 1
            words[-1] = words[-1].rstrip().removesuffix("\\")
            yield "\n".join([*exports, *words])
            exports = []
        elif line.strip():
            exports = []


def run(script: str) -> Iterator[dict[str, Any]]:
    """What the programs of a script are called with."""
    quoted = re.sub(r"<([A-Z_]+)>", r"'<\1>'", script)
    variables = "\n".join(f"{name}='${name}'" for name in _PLACEHOLDERS)
    with NamedTemporaryFile() as words, NamedTemporaryFile() as settings:
        subprocess.run(
            ["/bin/bash", "--norc", "-c", f"{_PROGRAMS}\n{variables}\n{quoted}"],
            env={"PATH": "/usr/bin:/bin", "NOTED_WORDS": words.name, "NOTED_SETTINGS": settings.name},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        calls = Path(words.name).read_text().split("\0\1\0")[:-1]
        exported = Path(settings.name).read_text().split("---\n")[:-1]
    for call, setting in zip(calls, exported, strict=True):
        argv = call.split("\0")
        env = dict(re.findall(r'^(SGLANG_\w+)="(.*)"$', setting, flags=re.MULTILINE))
        yield {"argv": argv, "env": env}


def from_flags(text: str) -> list[dict[str, Any]]:
    """A document whose command blocks are blank: the flags that it demands of the decode server."""
    demanded = re.findall(r"(--[a-z]+-[a-z-]+(?: [a-z0-9_]+)?)—", text)
    (config,) = set(re.findall(r"--hisparse-config='(\{.*?\})'", text))
    words = [word for flag in demanded if flag != "--hisparse-config" for word in flag.split()]
    return [{"argv": [*words, "--hisparse-config", config], "env": {}, "part_of": "decode"}]


def tips(text: str) -> Iterator[dict[str, Any]]:
    """Flags and variables that a document tells to add to a command."""
    for override in sorted(set(re.findall(r"--json-model-override-args '(\{.*?\})'", text))):
        yield {"argv": ["--json-model-override-args", override], "env": {}, "part_of": "server"}
    for few in sorted(set(re.findall(r"minimum configuration is\s*`?((?:--speculative-[a-z-]+ \d ?)+)", text))):
        yield {"argv": few.split(), "env": {}, "part_of": "server"}
    for name, value in sorted(set(re.findall(r"variable\s+`?(SGLANG_[A-Z0-9_]+)=(\w+)", text))):
        yield {"argv": [], "env": {name: value}, "part_of": "server"}


def generated(text: str) -> list[dict[str, Any]]:
    """The generator's answer to every choice."""
    body = text[text.index("const generateCommand = () => {") : text.index("const containerStyle")]
    choices = {
        "hardware": ["h200", "b200", "mi300x", "mi355x"],
        "modelname": ["v32", "v32speciale", "v32exp", "v32nvfp4", "v32mxfp4"],
        "strategy": [["tp", *more] for n in range(4) for more in itertools.combinations(["dp", "ep", "mtp"], n)],
        "reasoningParser": ["disabled", "enabled"],
        "toolcall": ["disabled", "enabled"],
    }
    asked = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    script = (
        f"const answer = (values) => {{ {body} return generateCommand(); }};"
        f"console.log(JSON.stringify({json.dumps(asked)}.map(answer)));"
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    entries = []
    for choice, answer in zip(asked, json.loads(done.stdout), strict=True):
        command = None if answer.startswith("# Error") else " ".join(answer.replace("\\\n", " ").split())
        entries.append({**choice, "strategy": ",".join(choice["strategy"]), "command": command})
    return entries


if __name__ == "__main__":
    main(Path(sys.argv[1]))

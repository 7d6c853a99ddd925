"""Looks up what the rules quote in the runtime's own sources, in every version that a rule says it holds in.

    PYTHONPATH=harness:kernels:tests python tests/wheels/rule_texts.py FOLDER [VERSION …]

FOLDER has one unpacked wheel per version (`FOLDER/0.5.16/sglang/…`). Prints, per version, the quotes that are not
there, those that are there before their rule's range, and sources whose line is far from the quote. Exits 1 where
there are any. Writes tests/golden/sglang_rules/texts.json: per rule and version the place where the text stands.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dsabench.sglang.rules.table import RULES, Rule
from dsabench.sglang.versions import Version, parse_version

PLACES = (
    *("srt/server_args.py", "srt/arg_groups", "srt/layers/attention", "srt/layers/cp", "srt/mem_cache", "srt/managers"),
    *(
        "srt/model_executor",
        "srt/disaggregation",
        "srt/distributed",
        "srt/lora/marlin_lora_temp",
        "srt/speculative",
        "kernels/ops/attention",
        "jit_kernel/flash_attention_v3.py",
        "srt/configs/model_config.py",
        "test/run_eval.py",
    ),
)
"""Where the runtime checks its settings."""

GOLDEN = Path(__file__).parents[1] / "golden" / "sglang_rules" / "texts.json"
HOLE = "\N{BULLET}"
_OURS = re.compile(r"\{[^}]*\}|‹[^›]*›")
_THEIRS = re.compile(r"%(?:s|d|r)|\{\}")
ELSEWHERE = {
    "SL09": "sgl_kernel",
    "SP16": "Python itself",
}
"""Rules whose words are not the runtime's."""
EARLIER: dict[str, str] = {}
"""Rules whose words stand in versions in which no setting of ours leads to them."""


def template_of(text: str) -> str:
    """A quote of ours with holes where values stand."""
    return _flat(_OURS.sub(HOLE, text))


def _flat(text: str) -> str:
    return " ".join(text.split())


class Sources:
    """Every text in the runtime's sources that could be one of its messages, with its place."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.texts: list[tuple[str, str]] = []
        for place in PLACES:
            root = package / place
            for file in sorted(root.rglob("*.py")) if root.is_dir() else [root] if root.is_file() else []:
                self.texts += [(text, f"{file.relative_to(package)}:{line}") for text, line in _texts(file)]

    def find(self, quote: str) -> list[str]:
        """Places whose text is the quote, holes standing for anything."""
        wanted = template_of(quote)
        anchor = max(wanted.split(HOLE), key=len)[:12]
        return [place for text, place in self.texts if (anchor in text or HOLE in text) and _same(text, wanted)]


def _texts(file: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 15:
            yield _flat(_THEIRS.sub(HOLE, node.value)), node.lineno
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
            yield _flat("".join(map(str, parts))), node.lineno


def _same(text: str, wanted: str) -> bool:
    """Equal, a hole on either side matching anything on the other."""
    if len(text.replace(HOLE, "")) < 12:
        return False
    theirs = ".+?".join(re.escape(part) for part in text.split(HOLE))
    ours = ".+?".join(re.escape(part) for part in wanted.split(HOLE))
    return re.fullmatch(theirs, wanted) is not None or re.fullmatch(ours, text) is not None


def quotes(rule: Rule, version: Version) -> str | None:
    """What is to be found in that version; None where nothing is quoted."""
    words = rule.words_in(version)
    quoted = words.kind not in {"silent", "document", "argparse"} and words.text and rule.id not in ELSEWHERE
    return words.text if quoted else None


def far_off(rule: Rule, version: Version, places: list[str]) -> str | None:
    """The source that the rule names for this version, where the text stands nowhere near."""
    named = re.findall(rf"{re.escape(str(version))}=([^:;]+):(\d+)", rule.source)
    if not named:
        return None
    near = any(file == place.rpartition(":")[0] and abs(int(line) - int(place.rpartition(":")[2])) <= 15
               for file, line in named for place in places)  # fmt: skip
    return None if near else ", ".join(f"{file}:{line}" for file, line in named)


def main(folder: Path, only: list[str]) -> int:
    missing = 0
    record: dict[str, dict[str, str]] = {}
    found = sorted(parse_version(path.name) for path in folder.iterdir() if (path / "sglang").is_dir())
    for version in found:
        if only and str(version) not in only:
            continue
        sources = Sources(folder / str(version) / "sglang")
        for rule in RULES:
            quote = quotes(rule, version)
            if quote is None:
                continue
            places = sources.find(quote)
            if rule.holds_in(version) and places:
                record.setdefault(rule.id, {})[str(version)] = places[0]
                wrong = far_off(rule, version, places)
                if wrong is not None:
                    missing += 1
                    print(f"{version} {rule.id}: not at {wrong} but at {', '.join(places[:3])}")
            if rule.holds_in(version) and not places:
                missing += 1
                print(f"{version} {rule.id}: not there: {quote}")
            elif not rule.holds_in(version) and places and rule.since > version and rule.id not in EARLIER:
                missing += 1
                print(f"{version} {rule.id}: there before {rule.since}: {places[0]}: {quote}")
            elif not rule.holds_in(version) and places:
                print(f"{version} {rule.id}: still there after {rule.until} (note): {places[0]}")
        print(f"{version}: {len(sources.texts)} texts read", file=sys.stderr)
    if not only:
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

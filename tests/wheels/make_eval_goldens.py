"""Write tests/golden/evals/*.json: what the originals score, for completions made by mutation.

`python tests/wheels/make_eval_goldens.py --wheel FOLDER --python PYTHON [--mmlu-script FILE] [EVAL…]`: FOLDER has an
unpacked sglang 0.5.9 wheel, PYTHON an environment with sgl-eval, openai, jinja2, pandas and pybase64, FILE is
benchmark/mmlu/bench_sglang.py of sglang's repository. A server replays the completions to the original over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

import eval_cases  # noqa: E402
from eval_replay import Replay, replays  # noqa: E402
from openai_server import OpenAiServer  # noqa: E402

GOLDENS = TESTS / "golden" / "evals"
CHILD = Path(__file__).with_name("eval_originals.py")


@dataclass(frozen=True)
class Bench:
    """Where the originals are."""

    wheel: Path
    python: str
    mmlu_script: Path | None


async def score(bench: Bench, replay: Replay, folder: Path) -> dict[str, object]:
    """Run the original against the replaying server."""
    data, out = replay.data, folder / f"{replay.eval}.out.json"
    if replay.eval == "aime25":  # graded without a server: sgl-eval's runner grades in threads, where its limits fail
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        data = folder / "aime25.predictions.jsonl"
        with data.open("w") as file:
            for row, text in zip(rows, replay.completions, strict=True):
                file.write(json.dumps({**row, "generation": text}) + "\n")
    async with OpenAiServer(replay.turn) as server:
        extra = [str(bench.mmlu_script)] if replay.eval == "mmlu" else []
        words = [bench.python, str(CHILD), str(bench.wheel), replay.eval, server.url, str(data), str(out), *extra]
        child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL, cwd=folder)
        if await child.wait():
            raise SystemExit(f"{replay.eval}: the original failed")
        found: dict[str, object] = json.loads(out.read_text())
        asked = len(server.prompts)
    if replay.eval != "aime25":
        assert asked >= eval_cases.CASES - 60, asked
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--mmlu-script", type=Path)
    parser.add_argument("evals", nargs="*")
    args = parser.parse_args()
    bench = Bench(args.wheel, args.python, args.mmlu_script)
    GOLDENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, make in replays().items():
            if (args.evals and name not in args.evals) or (name == "mmlu" and bench.mmlu_script is None):
                continue
            folder = Path(place) / name
            folder.mkdir()
            replay = make(folder)
            found = await score(bench, replay, folder)
            golden = replay.golden(found)
            cases = ",\n".join(json.dumps(case) for case in golden["cases"])
            head = json.dumps({**golden, "cases": []}).removesuffix("[]}")
            (GOLDENS / f"{name}.json").write_text(f"{head}[\n{cases}\n]}}\n")
            print(name, len(golden["cases"]), sum(one[-1] for one in golden["cases"]))


if __name__ == "__main__":
    asyncio.run(main())

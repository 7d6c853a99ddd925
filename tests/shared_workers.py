"""Several machines on one study in a PostgreSQL of this machine, killed with SIGKILL at random moments and started again.

    python tests/shared_workers.py --workers 4 --kills 50 [--seed 0]

Each worker has a folder of its own and measures at once what a server would take minutes for; all else is the product. At the end
every setting was searched once and every turn of the confirmation has both sides of one machine, all journals have the same records and
samples, and every record that a worker has written is among them. Prints what was seen as JSON; exit 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import postgres
from dsabench.config.load import load_study
from dsabench.model.record import Record
from dsabench.results.journal import read_journal
from dsabench.study.study import Study
from factories import ENVIRONMENT
from pretended import PretendedCluster, PretendedMachine

CONFIG = """
name: shared
runtime: {{kind: reference, model: tiny, base: {{kv_cache_dtype: bfloat16, chunked_prefill_size: 64}}}}
workloads:
  - {{name: one, dataset: random-ids, input_len: 16, output_len: 2, num_prompts: 12, max_concurrency: 2}}
  - {{name: two, dataset: random-ids, input_len: 32, output_len: 2, num_prompts: 12, max_concurrency: 2}}
sweeps:
  - axes: {{chunked_prefill_size: {chunks}}}
proposer: {{kind: {proposer}, seed: 0}}
objective: {{metric: output_throughput_tok_s, direction: maximize}}
budget: {{confirm_boots: {boots}}}
"""
CONFIRM_BOOTS = 4


@dataclass
class Seen:
    """Printed at the end."""

    kills: int = 0
    records: int = 0
    by_machine: dict[str, int] = field(default_factory=dict)
    """Records of each."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def work(config: Path, folder: Path, url: str, number: int, seconds: float) -> None:
    """Be one worker. It writes a line of each record that was kept."""

    def kept(record: Record) -> None:
        with folder.with_suffix(".written").open("a") as file:
            file.write(f"{record.id} {record.occasion} {record.boot}\n")

    def samples(place: Path, record: Record) -> str:
        name = f"samples/{record.id[:16]}-{record.occasion}.parquet"
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(record.boot)
        return name

    there = ENVIRONMENT.model_copy(update={"machine": f"machine-{number}"})
    cluster = PretendedCluster([PretendedMachine(kept, there, seconds, samples)])
    result = Study(load_study(config), folder, shared_in=url).run_on(cluster)
    assert [one.verdict for one in result.verdicts] == ["better"] * 2, result


def run(
    workers: int, kills: int, seed: int, *, settings: int = 40, seconds: float = 0.1, proposer: str = "grid"
) -> Seen:
    """Kill workers and start them again; then let all come to their end."""
    seen, chance = Seen(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="dsabench-shared-") as made, postgres.running() as url:
        place = Path(made)
        config = place / "study.yaml"
        config.write_text(
            CONFIG.format(chunks=[64 * n for n in range(1, settings + 1)], boots=CONFIRM_BOOTS, proposer=proposer)
        )
        folders = [place / f"worker-{number}" for number in range(workers)]

        def start(number: int) -> subprocess.Popen[bytes]:
            words = ["--worker", str(number), "--config", str(config), "--folder", str(folders[number]), "--url", url]
            with folders[number].with_suffix(".log").open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, __file__, *words, "--seconds", str(seconds)], stdout=log, stderr=log
                )

        began = time.monotonic()
        running = [start(number) for number in range(workers)]
        try:
            while seen.kills < kills:
                time.sleep(chance.uniform(0.0, 1.5))
                number = chance.randrange(workers)
                running[number].kill()
                seen.kills += running[number].wait() == -9
                running[number] = start(number)
            for number, process in enumerate(running):
                if process.wait(600) != 0:
                    log = folders[number].with_suffix(".log").read_text()
                    seen.problems.append(f"worker {number} ended with {process.returncode}: {log[-1500:]}")
        finally:
            for process in running:
                process.kill()
                process.wait()
        seen.seconds = round(time.monotonic() - began, 1)
        check(folders, settings, seen)
    return seen


def check(folders: Sequence[Path], settings: int, seen: Seen) -> None:
    """What the journals say in the end."""
    journals = [read_journal(folder / "journal.jsonl") for folder in folders]
    seen.problems += [problem for one in journals for problem in one.problems]
    all_records = [{record.key: record for record in one.records} for one in journals]
    if any(one != all_records[0] for one in all_records[1:]):
        seen.problems.append(f"the journals differ: {[len(one) for one in all_records]} records")
    records = list(all_records[0].values())
    seen.records = len(records)
    seen.by_machine = dict(sorted(Counter(str(record.environment.machine) for record in records).items()))
    there = {f"{record.id} {record.occasion} {record.boot}" for record in records}
    for folder in folders:
        written = folder.with_suffix(".written").read_text().splitlines()
        seen.problems += [f"lost: {line}" for line in written if line not in there]
        for record in records:
            samples = folder / str(record.samples)
            if not samples.is_file() or samples.read_text() != record.boot:
                seen.problems.append(f"{folder.name} lacks samples of {record.id[:10]} {record.occasion}")
    searched = Counter(
        (record.trial.runtime.id, record.trial.workload.name, record.environment.machine)
        for record in records
        if record.phase == "search"
    )
    default = next(
        record.trial.runtime.id for record in records if record.trial.runtime.knobs["chunked_prefill_size"] == 64
    )
    of_settings = Counter(spec for spec, _, _ in searched.elements())
    seen.problems += [f"searched twice: {one}" for one, count in searched.items() if count > 1]
    seen.problems += [f"searched {n} of 2: {one[:10]}" for one, n in of_settings.items() if n != 2 and one != default]
    if len(of_settings) != settings:
        seen.problems.append(f"{len(of_settings)} of {settings} settings were searched")
    turns: dict[int, dict[str | None, set[tuple[str, str]]]] = {}
    for record in records:
        if record.phase == "confirm" and record.turn is not None:
            of_machine = turns.setdefault(record.turn, {}).setdefault(record.environment.machine, set())
            of_machine.add((record.trial.runtime.id, record.trial.workload.name))
    whole = [turn for turn, of in turns.items() if any(len(sides) == 4 for sides in of.values())]
    if sorted(whole) != list(range(CONFIRM_BOOTS)):
        seen.problems.append(f"whole turns of the confirmation: {sorted(whole)}")


def main() -> int:
    """Be the parent, or a worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a trial")
    parser.add_argument("--proposer", default="grid")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(args.config, args.folder, args.url, args.worker, args.seconds)
        return 0
    seen = run(
        args.workers, args.kills, args.seed, settings=args.settings, seconds=args.seconds, proposer=args.proposer
    )
    print(json.dumps(seen.__dict__, indent=1))
    return 1 if seen.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Kill sweeps, or processes that they started, with SIGKILL at random moments, and resume them.

    python tests/kill_sweeps.py --kills 50 [--seed 0] [--victims sweep guard keeper server]

The first sweep is left alone. Its duration limits the random waits of the others. After each kill of a sweep: every line of
the journal is unchanged, no key is duplicated, no process of the sweep is left, none of its ports is open. After each
completed sweep: every trial has its measurements and no setting counts as failed. Each sweep loses at most one guard, keeper
or server, because a trial is retried once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

CONFIG = """
name: kills
runtime: {kind: reference, model: tiny, base: {kv_cache_dtype: fp8_e4m3, prefill_backend: flashmla_kv}}
workloads:
  - {name: one, dataset: random-ids, input_len: 48, output_len: 8, num_prompts: 12, max_concurrency: 2}
  - {name: two, dataset: random-ids, input_len: 96, output_len: 8, num_prompts: 12, max_concurrency: 4}
sweeps:
  - axes: {prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]}
proposer: {kind: grid}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: {max_trials: 6, max_boots: BOOTS, confirm_boots: 1}
"""
VICTIMS = {"guard": "keeper.py", "keeper": "keeper.py", "server": "dsabench.reference.launch_server"}
"""Role → what its command line contains; a guard is the parent of a keeper."""
MARK = "DSABENCH_KILL_TEST"
GONE_WITHIN_S = 15.0


@dataclass
class Tally:
    """What was seen; printed at the end."""

    kills: int = 0
    victims: Counter[str] = field(default_factory=Counter)
    sweeps_finished: int = 0
    whole_sweep_s: float = 0.0
    kills_while_serving: int = 0
    slowest_gone_s: float = 0.0
    records: int = 0
    problems: list[str] = field(default_factory=list)


def start(config: Path, results: Path, mark: str) -> subprocess.Popen[bytes]:
    """One `dsabench sweep`, with a mark in its environment that all it starts inherits."""
    log = (results.parent / "sweep.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(results)],
            env=os.environ | {MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def marked(mark: str) -> list[psutil.Process]:
    """Every living process that carries the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def listening(processes: list[psutil.Process]) -> set[int]:
    """The TCP ports on which they listen."""
    ports = set()
    for process in processes:
        try:
            ports |= {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
    return ports


def is_open(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def find_victim(role: str, mark: str, sweep: int) -> psutil.Process | None:
    """A process of the sweep in that role; None if there is none at the moment."""
    for process in marked(mark):
        try:
            is_one = any(VICTIMS[role] in word for word in process.cmdline())
            if is_one and (role == "server" or (process.ppid() == sweep) == (role == "guard")):
                return process
        except psutil.Error:
            continue
    return None


def kill_part(role: str, config: Path, results: Path, chance: random.Random, tally: Tally) -> bool:
    """Start or resume, kill a part at a random moment, and let the sweep continue; True if a part was killed."""
    mark = uuid.uuid4().hex
    sweep = start(config, results, mark)
    killed = False
    try:
        sweep.wait(chance.uniform(0.5, tally.whole_sweep_s))
    except subprocess.TimeoutExpired:
        while sweep.poll() is None and not killed:
            if (victim := find_victim(role, mark, sweep.pid)) is None:
                time.sleep(0.02)
                continue
            victim.kill()
            killed = True
            tally.kills += 1
            tally.victims[role] += 1
    sweep.wait()
    check_code(sweep, results, tally)
    check_gone(mark, set(), tally)
    return killed


def kill_one(config: Path, results: Path, chance: random.Random, tally: Tally) -> bool:
    """Start or resume, kill at a random moment, check; True when the sweep had ended before."""
    mark = uuid.uuid4().hex
    journal = results / "journal.jsonl"
    sweep = start(config, results, mark)
    try:
        sweep.wait(chance.uniform(0.05, tally.whole_sweep_s))
    except subprocess.TimeoutExpired:
        ports = listening(marked(mark))
        sweep.kill()
        sweep.wait()
        tally.kills += 1
        tally.victims["sweep"] += 1
        tally.kills_while_serving += bool(ports)
        check_gone(mark, ports, tally)
        check_keys(journal, tally)
        return False
    check_code(sweep, results, tally)
    check_gone(mark, set(), tally)
    return True


def run_whole(config: Path, results: Path, tally: Tally) -> bool:
    """Start or resume, and let it come to its end."""
    sweep = start(config, results, uuid.uuid4().hex)
    sweep.wait()
    check_code(sweep, results, tally)
    return True


def check_code(sweep: subprocess.Popen[bytes], results: Path, tally: Tally) -> None:
    """A sweep that was left alone ends with 0."""
    if sweep.returncode != 0:
        tally.problems.append(f"exit code {sweep.returncode}: {(results.parent / 'sweep.log').read_text()[-2000:]}")


def check_gone(mark: str, ports: set[int], tally: Tally) -> None:
    """Wait until nothing of the sweep is left; more than 15 s is a problem."""
    began = time.monotonic()
    while (left := marked(mark)) or any(is_open(port) for port in ports):
        if time.monotonic() - began > GONE_WITHIN_S:
            tally.problems.append(f"still there: {[(p.pid, ' '.join(p.cmdline())) for p in left]}, ports {ports}")
            for process in left:
                process.kill()
            return
        time.sleep(0.05)
    tally.slowest_gone_s = max(tally.slowest_gone_s, time.monotonic() - began)


def whole_lines(journal: Path) -> list[bytes]:
    """The lines that end in a newline."""
    return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []


def check_keys(journal: Path, tally: Tally) -> None:
    """No key twice, every whole line a record."""
    keys = Counter()
    for line in whole_lines(journal):
        data = json.loads(line)
        keys[(data["id"], data["environment"]["fingerprint"], data["occasion"])] += 1
    tally.problems += [f"recorded twice: {key}" for key, count in keys.items() if count > 1]


def check_whole(journal: Path, tally: Tally) -> None:
    """A finished sweep has its 6 search trials, and one confirmation of best and default on both workloads."""
    lines = [json.loads(line) for line in whole_lines(journal)]
    if len({line["environment"]["fingerprint"] for line in lines}) > 1:
        tally.problems.append("the runtime's code was changed during the test: nothing can be said")
    failed = [line["outcome"] for line in lines if line["outcome"]["kind"] == "failed"]
    failed = [outcome for outcome in failed if not outcome.get("transient")]
    phases = Counter(line["phase"] for line in lines if not line["outcome"].get("transient"))
    if phases != {"search": 6, "confirm": 4} or failed:
        tally.problems.append(f"a finished sweep holds {dict(phases)}, failed: {failed}")
    for trial in {line["id"] for line in lines}:
        occasions = [line["occasion"] for line in lines if line["id"] == trial]
        if occasions != list(range(len(occasions))):
            tally.problems.append(f"trial {trial[:10]} has occasions {occasions}")
    tally.records += len(lines)


def one_sweep(kills: int, chance: random.Random, tally: Tally, victims: Sequence[str] = ("sweep",)) -> None:
    """Run one sweep to its end; kill and resume it until so many kills are done."""
    with tempfile.TemporaryDirectory(prefix="dsabench-kills-") as folder:
        config, results = Path(folder) / "kills.yaml", Path(folder) / "results"
        parts = [role for role in victims if role != "sweep"]
        config.write_text(CONFIG.replace("BOOTS", "6" if parts else "5"))
        finished, before = False, []
        while not finished and not tally.problems:
            role = chance.choice(victims)
            if tally.kills < kills and role in parts:
                finished = True
                kill_part(role, config, results, chance, tally)
            elif tally.kills < kills:
                finished = kill_one(config, results, chance, tally)
            else:
                finished = run_whole(config, results, tally)
            after = whole_lines(results / "journal.jsonl")
            if after[: len(before)] != before:
                tally.problems.append("a line of the journal was lost or changed")
            before = after
        if finished:
            check_whole(results / "journal.jsonl", tally)
            tally.sweeps_finished += 1


def run(kills: int, seed: int, victims: Sequence[str] = ("sweep",)) -> Tally:
    """Kill this many times, in as many sweeps as that takes; the last sweep is resumed to its end."""
    chance, tally = random.Random(seed), Tally()
    began = time.monotonic()
    one_sweep(0, chance, tally)
    tally.whole_sweep_s = time.monotonic() - began
    while tally.kills < kills and not tally.problems:
        one_sweep(kills, chance, tally, victims)
        print(f"{tally.kills}/{kills} kills, {tally.sweeps_finished} sweeps finished", file=sys.stderr, flush=True)
    return tally


def main() -> int:
    """Print the tally as JSON; exit 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victims", nargs="+", choices=["sweep", *VICTIMS], default=["sweep"])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tally = run(options.kills, options.seed, options.victims)
    print(json.dumps(tally.__dict__))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())

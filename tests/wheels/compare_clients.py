"""bench_serving 0.5.23 and `dsabench bench` in turn against one reference runtime: do their records agree?

    python tests/wheels/compare_clients.py PYTHON FOLDER_WITH_UNPACKED_WHEEL [ROUNDS [LOAD…]]

PYTHON and the folder: see `bench_wheel.py`. Per load and round both clients run once, in alternating order. Counts, lists
of lengths and generated texts must be equal; of times the medians over the rounds are shown with the spread of each
client (half the range), and a difference beyond the two spreads together is marked. Exit code 1 when counts differ.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parent / "golden" / "bench_serving" / "data"
CONVERSATIONS = str(DATA / "conversations.json")
LOADS = {
    "random-ids": "--backend sglang --dataset-name random-ids --random-input-len 48 --random-output-len 32"
    " --random-range-ratio 1.0 --num-prompts 60 --max-concurrency 4",
    "random, Poisson": f"--backend sglang --dataset-name random --dataset-path {CONVERSATIONS} --random-input-len 64"
    " --random-output-len 16 --num-prompts 40 --request-rate 20",
    "sharegpt, completions": f"--backend sglang-oai --dataset-name sharegpt --dataset-path {CONVERSATIONS}"
    " --sharegpt-output-len 24 --num-prompts 50 --max-concurrency 4",
    "custom, chat": f"--backend sglang-oai-chat --dataset-name custom --dataset-path {DATA / 'custom.jsonl'}"
    " --sharegpt-output-len 24 --num-prompts 15 --max-concurrency 3",
    "chats behind prefixes": "--backend sglang-oai-chat --dataset-name generated-shared-prefix --gsp-num-groups 3"
    " --gsp-prompts-per-group 4 --gsp-system-prompt-len 30 --gsp-question-len 8 --gsp-output-len 12 --gsp-num-turns 3"
    " --max-concurrency 3",
    "agentic trace": f"--backend sglang-oai-chat --dataset-name agentic-trace --dataset-path {DATA / 'agentic.json'}"
    " --sharegpt-output-len 20 --num-prompts 6 --max-concurrency 3",
}
USAGE = ["--extra-request-body", '{"stream_options": {"include_usage": true}}']
"""For chats: without it bench_serving takes every answer for as long as was asked. Its reader of completions fails at it."""
ON_PURPOSE = {
    "sharegpt, completions": ("output_lens", "total_output_tokens"),
    "chats behind prefixes": ("total_input_tokens", "total_input_text_tokens"),
    "agentic trace": ("total_input_tokens", "total_input_text_tokens"),
}
"""Counts that differ, and rightly: bench_serving takes completions without usage for as long as was asked, and says that
conversations have no input.
"""
EQUAL = (
    *("tag", "backend", "dataset_name", "request_rate", "max_concurrency", "sharegpt_output_len", "random_input_len"),
    *("random_output_len", "random_range_ratio", "completed", "total_input_tokens", "total_input_text_tokens"),
    *("total_input_vision_tokens", "total_output_tokens", "total_output_tokens_retokenized", "accept_length"),
    *("input_lens", "output_lens", "generated_texts", "goodput_slos_ms"),
)
NOT_COMPARED = ("server_info", "ttfts", "itls", "errors", "slo_attainment_by_metric")


def main(python: str, folder: str, rounds: int, loads: list[str]) -> int:
    argv = [sys.executable, "-m", "dsabench.reference.launch_server", "--model", "tiny", "--port", "0"]
    argv += ["--cpu-threads", "1", "--disable-radix-cache"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(line.split()[-1] for line in server.stderr if "Listening on" in line)
        next(line for line in server.stderr if "ready to roll" in line)
        with (
            Path(os.devnull).open("wb") as nowhere,
            subprocess.Popen(["cat"], stdin=server.stderr, stdout=nowhere) as drain,
        ):
            clients = {
                "bench_serving": [python, "-B", str(HERE / "run_bench_wheel.py"), folder, "--disable-tqdm"],
                "dsabench": [sys.executable, "-m", "dsabench", "bench", "--draw", "exact"],
            }
            try:
                problems = [one for name in loads or LOADS for one in compare(name, clients, url, rounds)]
            finally:
                server.terminate()
                drain.wait(20)
    for problem in problems:
        print(f"DIFFERS: {problem}")
    return 1 if problems else 0


def compare(name: str, clients: dict[str, list[str]], url: str, rounds: int) -> list[str]:
    flags = [*LOADS[name].split(), "--base-url", url, "--tokenizer", str(DATA / "tokenizer"), "--seed", "5"]
    flags += USAGE if "-chat" in LOADS[name] else []
    flags += ["--model", str(DATA / "tokenizer"), "--output-details", "--goodput", "ttft:100", "tpot:20", "e2el:2000"]
    seen: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
    blocks: dict[str, str] = {}
    for round_ in range(rounds):
        for client in list(clients)[:: 1 if round_ % 2 else -1]:
            record, blocks[client] = run(clients[client], flags)
            seen[client].append(record)
    theirs, ours = seen["bench_serving"], seen["dsabench"]
    print(f"\n{name}: {rounds} rounds each\n{'':32}{'bench_serving':>22}{'dsabench':>22}")
    keys = [key for key in EQUAL if key not in ON_PURPOSE.get(name, ())]
    problems = [f"{name}: {key}" for key in keys for pair in zip(theirs, ours, strict=True) if unequal(key, *pair)]
    problems += [f"{name}: lacks {key}" for key in theirs[0] if key not in ours[0]]
    if name not in ON_PURPOSE and form_of(blocks["bench_serving"]) != form_of(blocks["dsabench"]):
        problems.append(f"{name}: the printed block\n{form_of(blocks['bench_serving'])}\n{form_of(blocks['dsabench'])}")
    for key in theirs[0]:
        if key not in EQUAL and key not in NOT_COMPARED:
            show(key, [record[key] for record in theirs], [record[key] for record in ours])
    return sorted(set(problems))


def run(command: list[str], flags: list[str]) -> tuple[dict[str, Any], str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        done = subprocess.run([*command, *flags, "--output-file", path], capture_output=True, text=True, check=False)
        if done.returncode or not path.is_file():
            sys.exit(f"{command}: {done.stdout[-500:]}{done.stderr[-3000:]}")
        block = done.stdout[done.stdout.index("============ Serving") :]
        return json.loads(path.read_text()), block[: block.index("=" * 50) + 50]


def unequal(key: str, theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    return theirs.get(key) != ours.get(key)


def form_of(block: str) -> str:
    """The block with every figure replaced by its place, its width kept."""
    return re.sub(r"\d+\.\d+ *(?=\n)|(?<=Peak concurrent requests:)\s+\d+ *", "F", block)


def show(key: str, theirs: list[float], ours: list[float | None]) -> None:
    if None in ours:
        print(f"{key:32}{statistics.median(theirs):12.3f}{'not observed':>32}")
        return
    middle, spread = statistics.median, lambda values: (max(values) - min(values)) / 2
    beyond = abs(middle(theirs) - middle(ours)) > spread(theirs) + spread(ours)
    cells = [f"{middle(values):12.3f} ±{spread(values):8.3f}" for values in (theirs, ours)]
    print(f"{key:32}{cells[0]:>22}{cells[1]:>22}{'  <' if beyond else ''}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5, sys.argv[4:]))

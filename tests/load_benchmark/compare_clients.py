"""CPU per frame and error of TTFT: `dsabench bench` beside the Rust client of sglang 0.5.23, in one run.

    python tests/load_benchmark/compare_clients.py --rust …/sglang/srt/rust_extensions/_bench….so --output record.json

The mock server has one core, the client another. Rounds alternate which client goes first. CPU is the rusage of the
client's whole process tree, from its start to its exit: all of it, start-up included, and less its bare start-up. That is
the CPU of the same program started with `--help` (median of several), or, for the third ratio, the CPU that
`dsabench bench` itself reports to have used when its libraries were loaded and its flags parsed (`client.startup_cpu_s`);
the Rust client, which loads in a few milliseconds, has `--help` taken off in both. dsabench's phases stand beside.

The two clients of a round run one right after the other, so the ratio is taken round by round: a machine whose other
tenants come and go changes by a factor of two within a minute. Told are the median of the rounds' ratios with a 95 %
interval (rounds resampled), and the ratio of the means over all rounds. `--more` adds rounds to those in the output file.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clients import Client, Load, bare_start, dsabench, measure, rust
from paced import compiled, serving

COSTS = ("cpu_us_per_frame_all", "cpu_us_per_frame", "cpu_us_per_frame_loaded")


def main() -> None:
    options = _options()
    output = Path(options.output) if options.output else None
    clients = [dsabench(options.python), *([rust(options.rust, options.python)] if options.rust else [])]
    record: dict[str, Any] = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": _cpu(), "kernel": platform.release(), "python": platform.python_version()},
        "conditions": {
            "tokens": options.tokens, "requests": options.requests, "gap_ms": 20,
            "server_core": options.server_core, "client_core": options.client_core,
        },
    }  # fmt: skip
    before = json.loads(output.read_text()) if output and options.more else {"rounds": [], "start_cpu_s": {}}
    if options.more and before["conditions"] != record["conditions"]:
        raise SystemExit(f"{output}: its rounds were of other conditions")
    record["start_cpu_s"] = before["start_cpu_s"] | {
        client.name: [*before["start_cpu_s"].get(client.name, []), *_starts(client, options.client_core)]
        for client in clients
    }
    start_s = {name: statistics.median(values) for name, values in record["start_cpu_s"].items()}
    rounds = list(before["rounds"])
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for streams in options.streams:
            first = 1 + max((r["round"] for r in rounds if r["streams"] == streams), default=-1)
            for number in range(first, first + options.rounds):
                for client in clients if number % 2 == 0 else clients[::-1]:
                    rounds.append(
                        _round(client, program, streams, number, options=options, start_s=start_s[client.name])
                    )
                    print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
    record["rounds"] = rounds
    record["summary"] = [_summary(rounds, streams) for streams in dict.fromkeys(r["streams"] for r in rounds)]
    _print(record["summary"])
    if output:
        output.write_text(json.dumps(record, indent=1) + "\n")


def _starts(client: Client, core: int | None) -> list[float]:
    return [bare_start(client, core) for _ in range(7)]


def _round(
    client: Client, program: Path, streams: int, number: int, *, options: argparse.Namespace, start_s: float
) -> dict[str, Any]:
    load = Load(streams, max(streams * 6, options.requests), options.tokens)
    with serving(program, cores=[options.server_core], seed=number + 1) as server:
        cost = measure(client, server.base_url, load, options.client_core)
    truth, line = server.truth, cost.line
    loaded_s = line["client"]["startup_cpu_s"] if "client" in line else start_s
    asked = load.requests * load.tokens
    return {
        "client": client.name,
        "streams": streams,
        "round": number,
        "cpu_us_per_frame_all": cost.cpu_s / truth["frames"] * 1e6,
        "cpu_us_per_frame": (cost.cpu_s - start_s) / truth["frames"] * 1e6,
        "cpu_us_per_frame_loaded": (cost.cpu_s - loaded_s) / truth["frames"] * 1e6,
        "ttft_error_ms": line["mean_ttft_ms"] - truth["ttft_mean_ms"],
        "ttft_true_ms": truth["ttft_mean_ms"],
        "tokens_off": line["total_output_tokens"] - truth["frames"],
        "frames_unserved": asked - truth["frames"],
        "server_late_mean_ms": truth["late_mean_ms"],
        "rss_mb": cost.rss_mb,
        "wall_s": cost.wall_s,
        "phases_cpu_s": {name: round(used, 4) for name, used in line.get("client", {}).get("phases_cpu_s", {}).items()},
    }


def _summary(rounds: Sequence[dict[str, Any]], streams: int) -> dict[str, Any]:
    """Means over rounds; the median of the rounds' ratios with a 95 % interval."""
    of = {
        name: [r for r in rounds if r["streams"] == streams and r["client"] == name]
        for name in dict.fromkeys(r["client"] for r in rounds)
    }
    summary: dict[str, Any] = {"streams": streams}
    for name, own in of.items():
        summary[name] = {
            key: round(statistics.fmean(r[key] for r in own), 3) for key in (*COSTS, "ttft_error_ms", "rss_mb")
        } | {
            "tokens_off": sum(abs(r["tokens_off"]) for r in own),
            "frames": "all" if not any(r["frames_unserved"] for r in own) else "some missing",
        }
    if len(of) == 2:
        for name in COSTS:
            ours, theirs = (np.array([r[name] for r in of[client]]) for client in ("dsabench", "rust"))
            draw = np.random.default_rng(0).integers(0, len(theirs), (10_000, len(theirs)))
            ratios = ours / theirs
            low, high = np.percentile(np.median(ratios[draw], axis=1), [2.5, 97.5]).round(3).tolist()
            summary[f"ratio_{name}"] = {
                "ratio": round(float(np.median(ratios)), 3), "low": low, "high": high,
                "of_means": round(float(ours.mean() / theirs.mean()), 3), "rounds": len(ratios),
            }  # fmt: skip
    return summary


def _print(summaries: Sequence[dict[str, Any]]) -> None:
    print(
        "| streams | client | CPU µs/frame, all | ratio (95 %), of means | less start-up | ratio (95 %), of means | libraries loaded"
        " | ratio (95 %), of means | TTFT error ms | tokens off |"
    )
    print("| ---: | --- | ---: | --- | ---: | --- | ---: | --- | ---: | ---: |")
    for summary in summaries:
        for name in ("dsabench", "rust"):
            if name not in summary:
                continue
            own, cells = summary[name], [summary["streams"], name]
            for cost in COSTS:
                ratio = summary.get(f"ratio_{cost}", {})
                shown = "{ratio} ({low} to {high}), {of_means}".format(**ratio) if ratio and name == "dsabench" else ""
                cells += [own[cost], shown]
            print("|", " | ".join(map(str, [*cells, own["ttft_error_ms"], own["tokens_off"]])), "|")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rust", type=Path, help="extension module of the sglang wheel; without it dsabench alone")
    parser.add_argument("--python", default=sys.executable, help="interpreter that both clients run in")
    parser.add_argument("--streams", type=int, nargs="+", default=[200, 800, 1600])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4800, help="per run, and at least six a stream")
    parser.add_argument("--tokens", type=int, default=64, help="frames per answer, up to 1000")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--output")
    parser.add_argument("--more", action="store_true", help="add to the rounds in the output file")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""CPU per frame and error of TTFT: `dsabench bench` beside the Rust client of sglang 0.5.23, in one run.

    python tests/load_benchmark/compare_clients.py --rust …/sglang/srt/rust_extensions/_bench….so --output record.json

The mock server has one core, the client another. Rounds alternate which client goes first. Of each client's CPU the bare
start-up (`--help`, median of several) is taken off; what else it does besides the load, it pays for.
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


def main() -> None:
    options = _options()
    clients = [dsabench(options.python), *([rust(options.rust, options.python)] if options.rust else [])]
    record: dict[str, Any] = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": _cpu(), "kernel": platform.release(), "python": platform.python_version()},
        "conditions": {
            "tokens": options.tokens, "requests_per_stream": options.per_stream, "gap_ms": 20,
            "server_core": options.server_core, "client_core": options.client_core,
        },
    }  # fmt: skip
    starts = {client.name: [bare_start(client, options.client_core) for _ in range(7)] for client in clients}
    record["start_cpu_s"] = {name: statistics.median(values) for name, values in starts.items()}
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        record["rounds"] = [
            _round(client, program, streams, number, options=options, start_s=record["start_cpu_s"][client.name])
            for streams in options.streams
            for number in range(options.rounds)
            for client in (clients if number % 2 == 0 else clients[::-1])
        ]
    record["summary"] = [_summary(record["rounds"], streams) for streams in options.streams]
    _print(record["summary"])
    if options.output:
        Path(options.output).write_text(json.dumps(record, indent=1) + "\n")


def _round(
    client: Client, program: Path, streams: int, number: int, *, options: argparse.Namespace, start_s: float
) -> dict[str, Any]:
    load = Load(streams, streams * options.per_stream, options.tokens)
    with serving(program, cores=[options.server_core], seed=number + 1) as server:
        cost = measure(client, server.base_url, load, options.client_core)
    truth, line = server.truth, cost.line
    asked = load.requests * load.tokens
    return {
        "client": client.name,
        "streams": streams,
        "round": number,
        "cpu_us_per_frame": (cost.cpu_s - start_s) / truth["frames"] * 1e6,
        "ttft_error_ms": line["mean_ttft_ms"] - truth["ttft_mean_ms"],
        "ttft_true_ms": truth["ttft_mean_ms"],
        "tokens_off": line["total_output_tokens"] - truth["frames"],
        "frames_unserved": asked - truth["frames"],
        "server_late_mean_ms": truth["late_mean_ms"],
        "rss_mb": cost.rss_mb,
        "wall_s": cost.wall_s,
    }


def _summary(rounds: Sequence[dict[str, Any]], streams: int) -> dict[str, Any]:
    """Means over rounds; the ratio with a 95 % interval, rounds resampled as pairs."""
    of = {
        name: [r for r in rounds if r["streams"] == streams and r["client"] == name]
        for name in dict.fromkeys(r["client"] for r in rounds)
    }
    summary: dict[str, Any] = {"streams": streams}
    for name, own in of.items():
        summary[name] = {
            key: round(statistics.fmean(r[key] for r in own), 3)
            for key in ("cpu_us_per_frame", "ttft_error_ms", "rss_mb")
        } | {
            "tokens_off": sum(abs(r["tokens_off"]) for r in own),
            "frames": "all" if not any(r["frames_unserved"] for r in own) else "some missing",
        }
    if len(of) == 2:
        cpu = {name: np.array([r["cpu_us_per_frame"] for r in own]) for name, own in of.items()}
        draw = np.random.default_rng(0).integers(0, len(cpu["rust"]), (10_000, len(cpu["rust"])))
        ratios = cpu["dsabench"][draw].mean(axis=1) / cpu["rust"][draw].mean(axis=1)
        summary["ratio"] = round(float(cpu["dsabench"].mean() / cpu["rust"].mean()), 3)
        summary["ratio_95"] = [round(float(x), 3) for x in np.percentile(ratios, [2.5, 97.5])]
    return summary


def _print(summaries: Sequence[dict[str, Any]]) -> None:
    print("| streams | client | CPU µs/frame | TTFT error ms | tokens lost or extra | ratio (95 %) |")
    print("| ---: | --- | ---: | ---: | ---: | --- |")
    for summary in summaries:
        for name in ("dsabench", "rust"):
            if name in summary:
                own = summary[name]
                ratio = (
                    f"{summary['ratio']} ({summary['ratio_95'][0]} to {summary['ratio_95'][1]})"
                    if "ratio" in summary
                    else ""
                )
                cells = (summary["streams"], name, own["cpu_us_per_frame"], own["ttft_error_ms"], own["tokens_off"])
                print("|", " | ".join(map(str, cells)), "|", ratio if name == "dsabench" else "", "|")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rust", type=Path, help="extension module of the sglang wheel; without it dsabench alone")
    parser.add_argument("--python", default=sys.executable, help="interpreter that both clients run in")
    parser.add_argument("--streams", type=int, nargs="+", default=[200, 800, 1600])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-stream", type=int, default=6, help="requests per stream, one after another")
    parser.add_argument("--tokens", type=int, default=64, help="frames per answer, up to 1000")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()

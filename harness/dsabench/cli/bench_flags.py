"""The flags of `dsabench bench`: those of sglang's bench_serving 0.5.23 under their own names, and a few of ours."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, NoReturn, cast

from dsabench.cli.bench_checks import check_combinations, check_output
from dsabench.cli.bench_values import address, json_object, one_of, positive, rate, ratio, slo, whole
from dsabench.errors import InputError, nearest
from dsabench.model.dataset import DATASETS

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

BACKENDS = (
    "sglang",
    "sglang-native",
    "sglang-oai",
    "sglang-oai-chat",
    "vllm",
    "vllm-chat",
    "lmdeploy",
    "lmdeploy-chat",
)
_OTHER_BACKENDS = ("sglang-embedding", "vllm-embedding", "trt", "gserver", "truss")
_OTHER_DATASETS = ("mmmu", "image", "longbench_v2", "speed-bench")
_REFUSED = {
    "no LoRA adapters": ("--lora-name", "--lora-request-distribution", "--lora-zipf-alpha"),
    "no images": (
        "--image-count", "--image-resolution", "--random-image-count", "--image-format", "--image-content",
    ),
    "not one of its datasets": (
        "--speed-bench-category", "--speed-bench-output-len",
    ),
    "profile such workers one by one with --base-url": (
        "--pd-separated", "--profile-prefill-url", "--profile-decode-url",
    ),
    "latencies need a stream": ("--disable-stream",),
    "it is this program that takes its place": ("--rust-client", "--rust-worker-threads"),
    "HTTP only": ("--protocol",),
    "all requests have the same headers": ("--gsp-send-routing-key",),
    "per-request samples are in --output-details": ("--print-requests",),
    "the record has the peaks": ("--plot-throughput",),
}  # fmt: skip


class _BenchParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message.replace("argument ", "", 1))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print panels like typer's, so that this command looks like the others."""
        from rich.console import Console  # here, because a load test must start without rich
        from rich.padding import Padding
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        console = Console(file=cast("IO[str] | None", file), highlight=False)
        usage = Text.assemble(("Usage: ", "yellow"), (f"{self.prog} [FLAGS]...", "bold"))
        console.print("", Padding(usage, (0, 1)), "", Padding(self.description or "", (0, 1)), "", sep="\n")
        for title, rows in flag_tables(self).items():
            table = Table(box=None, show_header=False, padding=(0, 1), expand=True)
            table.add_column(style="bold cyan", no_wrap=True)
            table.add_column(ratio=1)
            for flag, meaning in rows:
                table.add_row(Text(flag), Text(meaning))
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        console.print("", Padding(self.epilog or "", (0, 1)), "", sep="\n")


def flag_tables(parser: argparse.ArgumentParser) -> dict[str, list[tuple[str, str]]]:
    """Title of a group → its flags with their meaning, choices and default."""
    tables: dict[str, list[tuple[str, str]]] = {}
    for group in parser._action_groups:  # noqa: SLF001 (argparse has no public list)
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
        if shown:
            tables[(group.title or "options").capitalize()] = [(_flag(one), _meaning(one)) for one in shown]
    return tables


def _flag(action: argparse.Action) -> str:
    name = action.option_strings[-1]
    return name if action.metavar is None else f"{name} {action.metavar}"


def _meaning(action: argparse.Action) -> str:
    choices = ", ".join(map(str, action.choices or ()))
    meaning = (action.help or "").replace("%(choices)s", choices)
    if choices and not all(f"{choice}" in meaning for choice in action.choices or ()):
        meaning = f"{meaning}: {choices}"
    tells = (
        action.nargs != 0 and action.default is not None and action.default not in ("", {}) and "default" not in meaning
    )
    return f"{meaning} (default {_words(action.default)})" if tells else meaning


def _words(default: object) -> str:
    return " ".join(map(str, default)) if isinstance(default, list) else str(default)


class _Refuse(argparse.Action):
    """A flag that bench_serving has and this program does not, named with the reason."""

    def __call__(self, _parser: object, _namespace: object, _values: object, flag: str | None = None) -> NoReturn:
        raise InputError(f"{flag}: not supported by dsabench bench: {self.metavar}")


def parse_flags(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `--help` prints and exits 0.

    Raises:
        InputError: an unknown or unsupported flag, or a value that is not allowed; one line with the nearest match.

    """
    parser = make_parser()
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        flags = [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001 (no public list)
        near = nearest(unknown[0].partition("=")[0], flags)
        raise InputError(f"{unknown[0]}: no such flag" + (f"; did you mean {near}?" if near else " (see --help)"))
    check_combinations(known)
    check_output(known)
    return known


def make_parser() -> argparse.ArgumentParser:
    """The parser of all flags."""
    parser = _BenchParser(
        prog="dsabench bench",
        description="Load one server and report what sglang's bench_serving reports: same flags, block and JSON line.",
        epilog="Exit codes: 0 done, 2 wrong input, 3 the server or the client failed, 130 interrupted.",
    )
    _add_server(parser)
    _add_datasets(parser)
    _add_shared_prefix(parser)
    _add_load(parser)
    _add_requests(parser)
    _add_output(parser)
    _add_profile(parser)
    for reason, flags in _REFUSED.items():
        for flag in flags:
            parser.add_argument(flag, action=_Refuse, nargs="*", metavar=reason, help=argparse.SUPPRESS)
    return parser


def _add_server(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("server").add_argument
    add(
        "--backend",
        type=one_of(BACKENDS, _OTHER_BACKENDS),
        default="sglang",
        help=f"what to send to: {', '.join(BACKENDS)}",
    )
    add("--base-url", type=address, help="address of the server; else http://HOST:PORT")
    add("--host", default="127.0.0.1", help="the server's host; the default is 127.0.0.1, bench_serving's is 0.0.0.0")
    add("--port", type=whole(1, 65535), help="its port; the default is 30000, for vllm 8000, for lmdeploy 23333")
    add("--ready-check-timeout-sec", type=int, default=60, help="wait so long for /v1/models; 0 does not ask")
    add("--model", help="name of the model; else the first of /v1/models")
    add("--served-model-name", help="name that requests carry; else --model")
    add("--tokenizer", help="folder with tokenizer.json, or `bytes` (reference runtime); else what the server names")
    add("--vocab-size", type=whole(1), help="ids below it are valid; with --tokenize-prompt no tokenizer is needed")
    add("--header", nargs="+", metavar="KEY=VALUE", help="HTTP headers")
    add("--disable-retokenize", action="store_true", help="report retokenized totals as 0")


def _add_datasets(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("dataset").add_argument
    add(
        "--dataset-name",
        type=one_of(tuple(DATASETS), _OTHER_DATASETS),
        default="sharegpt",
        help=f"where prompts come from: {', '.join(DATASETS)}",
    )
    add("--dataset-path", default="", help="file or http(s) address")
    add("--dataset-sha256", help="refuse the file if it has another checksum")
    add("--draw", choices=("exact", "own"),
        help="by default what bench_serving draws for the seed, but every row is checked, and a trace is replayed token for "
        "token; exact: bench_serving's to the last prompt; own: random ids that share no prefix")  # fmt: skip
    add("--num-prompts", type=whole(1), default=1000, help="requests to send")
    add("--sharegpt-output-len", type=whole(4), help="output length of sharegpt, custom, openai, agentic-trace")
    add("--sharegpt-context-len", type=whole(1), help="leave longer conversations out")
    add("--random-input-len", type=whole(1), default=1024, help="prompt length of random and random-ids, in tokens")
    add("--random-output-len", type=whole(1), default=1024, help="output length of them")
    add("--random-range-ratio", type=ratio, default=0.0, help="lengths are uniform on [ratio x length, length]")
    add("--tokenize-prompt", action="store_true", help="send token ids")
    add("--apply-chat-template", action="store_true", help="wrap prompts in the tokenizer's chat template")
    add("--prompt-suffix", default="", help="text behind each prompt (sharegpt, custom)")
    add(
        "--mooncake-slowdown-factor",
        type=positive,
        default=1.0,
        help="stretch the times of a trace (also burstgpt) by it",
    )
    add("--mooncake-num-rounds", type=whole(1), default=1, help="send each session so many times")
    add("--mooncake-workload", choices=("mooncake", "conversation", "synthetic", "toolagent"), default="conversation",
        metavar="TRACE", help="which trace: %(choices)s")  # fmt: skip
    add("--agentic-max-turns", type=whole(1), help="turns of a conversation at most (agentic-trace)")
    add("--dataset-offset", type=whole(0), default=0, help="begin with this conversation (agentic-trace)")
    add(
        "--use-trace-timestamps",
        action="store_true",
        help="name the rate `trace` also with --draw exact (traces are followed anyway)",
    )


def _add_shared_prefix(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("generated-shared-prefix").add_argument
    add("--gsp-num-groups", type=whole(1), default=64, help="groups, each with its own system prompt")
    add("--gsp-prompts-per-group", type=whole(1), default=16, help="prompts per group")
    add("--gsp-system-prompt-len", type=whole(1), default=2048, help="length of a system prompt, in tokens")
    add("--gsp-question-len", type=whole(1), default=128, help="length of a question")
    add("--gsp-output-len", type=whole(1), default=256, help="output length")
    add("--gsp-range-ratio", type=ratio, default=1.0, help="lengths are uniform on [ratio x length, length]")
    add("--gsp-fast-prepare", action="store_true", help="do not count the prompts' tokens")
    add("--gsp-num-turns", type=whole(1), default=1, help="questions of a chat; the server's answers become part of it")
    add("--gsp-ordered", action="store_true", help="do not shuffle")
    add("--gsp-group-distribution", choices=("uniform", "zipf"), default="uniform",
        help="how requests spread over groups")  # fmt: skip
    add("--gsp-zipf-alpha", type=positive, help="exponent of zipf")


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("load").add_argument
    add("--request-rate", type=rate, default=math.inf, help="requests per second; inf sends all at once")
    add("--arrivals", choices=("poisson", "constant"), default="poisson", help="spacing at a finite rate")
    add("--burstiness", type=positive, default=1.0, help="shape of gamma distances; 1 is Poisson, below it burstier")
    add("--max-concurrency", type=whole(1), help="requests in flight at most")
    add("--warmup-requests", type=whole(0), default=1, help="requests before the measurement")
    add("--flush-cache", action="store_true", help="empty the server's prefix cache after the warm-up")
    add("--flush-cache-timeout", type=positive, default=60.0, help="seconds the server may wait to be idle")
    add("--seed", type=whole(0, 2**32 - 1), default=42, help="seed of prompts and gaps")
    add("--workers", type=whole(1), help="client processes; else as many as the load needs")
    add(
        "--request-timeout-s",
        type=positive,
        default=6 * 60 * 60.0,
        help="limit of one request in seconds (default 21600)",
    )


def _add_requests(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("requests").add_argument
    add("--temperature", type=float, default=0.0, help="sampling temperature")
    add("--top-p", type=float, default=1.0, help="nucleus sampling")
    add("--disable-ignore-eos", action="store_true", help="let the model end an answer early")
    add("--extra-request-body", type=json_object, default={}, metavar="JSON", help="fields to add to each body")
    add("--return-logprob", action="store_true", help="ask for log probabilities")
    add("--top-logprobs-num", type=whole(0), default=0, help="of so many best tokens each")
    add("--token-ids-logprob", type=int, nargs="+", metavar="ID", help="of these token ids")
    add("--logprob-start-len", type=int, default=-1, help="from this prompt position on; -1 is the output only")
    add("--return-routed-experts", action="store_true", help="ask for the experts of each token")
    add("--fake-prefill", action="store_true", help="decode-only benchmark of a server with a fake transfer backend")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add("--output-file", help="append the JSON line here; else a name from backend, date and dataset")
    add("--output-details", action="store_true", help="columns per request in the JSON line")
    add("--samples", metavar="FILE", help="write one row per request, frames and times, as FILE.parquet")
    add("--goodput", nargs="+", type=slo, metavar="KEY:VALUE", help="SLOs in ms: ttft, tpot, e2el")
    add("--cache-report", action="store_true", help="how much the server's prefix cache answered")
    add("--tag", help="a word to write into the JSON line")
    add("--disable-tqdm", action="store_true", help="no progress")
    add("--json", action="store_true", help="print the JSON line instead of the block")
    add("--plot", metavar="FILE", help="draw latencies, requests in flight and throughput over time, as SVG")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("profiler of the server").add_argument
    add("--profile", action="store_true", help="start it before the run and stop it after")
    add("--profile-activities", nargs="+", default=["CPU", "GPU"], choices=("CPU", "GPU", "CUDA_PROFILER", "XPU", "MEM"),
        metavar="NAME", help="what to record: %(choices)s")  # fmt: skip
    add("--profile-start-step", type=int, help="first step to record")
    add("--profile-steps", type=int, help="number of steps from there on")
    add("--profile-num-steps", type=int, help="number of steps to record from now on")
    add("--profile-by-stage", action="store_true", help="record prefill and decode apart")
    add("--profile-stages", nargs="+", help="which of them")
    add("--profile-output-dir", help="folder on the server")
    add("--profile-prefix", help="beginning of the files' names")

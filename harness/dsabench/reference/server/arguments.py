"""The command line, with sglang 0.5.23's flag names. Wrong flags are an `InputError` of one line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsabench.errors import InputError, nearest
from dsabench.reference.engine.layout import ParallelLayout
from dsabench.reference.engine.settings import DecodeBackend, HiSparseConfig, PrefillBackend
from dsabench.reference.engine.sizes import SIZES, ModelSize

_OVERRIDES_FLAG = "--json-model-override-args"
_PATTERN, _TOPK = "index_topk_pattern", "index_topk"
_HISPARSE_FLAG = "--hisparse-config"
_DEFAULT_STEPS = 3  # sglang's auto_choose_speculative_params for DeepseekV32ForCausalLM
_SIZES_OF_PARALLEL = {
    ("--tp-size", "--tensor-parallel-size", "--tp"): "processes that share a model",
    ("--dp-size", "--data-parallel-size", "--dp"): "replicas of it, or groups of ranks with --enable-dp-attention",
    ("--ep-size", "--expert-parallel-size", "--ep"): "sets of ranks that have whole experts",
}
PAGE_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """The flags as given. None is a flag that was not given; `resolve_settings.resolve` puts the default in its place."""

    model_path: str
    served_model_name: str | None
    host: str
    port: int
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["auto", "bfloat16", "float32"]
    kv_cache_dtype: Literal["auto", "bf16", "bfloat16", "fp8_e4m3"]
    dsa_prefill_backend: PrefillBackend | None
    dsa_decode_backend: DecodeBackend | None
    chunked_prefill_size: int
    max_running_requests: int | None
    pp_max_micro_batch_size: int | None
    max_total_tokens: int | None
    context_length: int | None
    page_size: int
    random_seed: int
    disable_radix_cache: bool
    enable_metrics: bool
    skip_server_warmup: bool
    log_level: str
    cpu_threads: int
    json_model_override_args: str
    speculative_algorithm: Literal["EAGLE", "NEXTN"] | None
    speculative_num_steps: int | None
    speculative_eagle_topk: int | None
    speculative_num_draft_tokens: int | None
    tp_size: int
    dp_size: int
    ep_size: int
    enable_dp_attention: bool
    enable_hisparse: bool
    hisparse_config: str | None
    disaggregation_mode: Literal["null", "prefill", "decode"]
    disaggregation_bootstrap_port: int
    nnodes: int
    node_rank: int
    dist_init_addr: tuple[str, int] | None

    @property
    def parallel(self) -> ParallelLayout:
        """Processes that serve together."""
        return ParallelLayout(self.tp_size, self.dp_size, self.ep_size, self.enable_dp_attention)

    @property
    def ranks_here(self) -> range:
        """Those of them on this machine."""
        return self.parallel.on_node(self.node_rank, self.nnodes)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def parse(argv: Sequence[str]) -> ServerArgs:
    """Read the command line.

    Raises:
        InputError: an unknown flag or a value that is not allowed; one line with what is, and the nearest match.

    """
    parser = _parser()
    try:
        known, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error
    if unknown:
        flags = sorted(flag for action in parser._actions for flag in action.option_strings)  # noqa: SLF001 (no public list)
        raise InputError(f"{unknown[0]}: no such flag{_nearest(unknown[0].partition('=')[0], flags)} (see --help)")
    args = ServerArgs(**vars(known))
    _check(args)
    return args


def _check(args: ServerArgs) -> None:
    """Refuse what no kernel or cache can do."""
    plain = args.kv_cache_dtype != "fp8_e4m3"
    for flag, backend in (("prefill", args.dsa_prefill_backend), ("decode", args.dsa_decode_backend)):
        if plain and backend == "flashmla_kv":
            raise InputError(
                f"--dsa-{flag}-backend flashmla_kv reads packed fp8 rows: it needs --kv-cache-dtype fp8_e4m3, "
                f"not {args.kv_cache_dtype} (allowed with it: flashmla_sparse)"
            )
    if args.page_size not in PAGE_SIZES:
        allowed = ", ".join(map(str, PAGE_SIZES))
        raise InputError(f"--page-size: {args.page_size} is not allowed (allowed: {allowed})")
    if args.chunked_prefill_size == 0:
        raise InputError("--chunked-prefill-size: 0 is not allowed (allowed: at least 1, or -1 for no limit)")
    if args.max_total_tokens is not None and args.max_total_tokens < args.page_size:
        raise InputError(f"--max-total-tokens: {args.max_total_tokens} is less than a page of {args.page_size}")
    draft_steps_of(args)
    _check_hisparse(args)
    _check_layout(args.parallel, model_size(args.model_path, args.json_model_override_args))
    _check_nodes(args)
    longest = SIZES[args.model_path].context
    if args.context_length is not None and args.context_length > longest:
        raise InputError(
            f"--context-length: {args.model_path} was made for at most {longest}, not {args.context_length}"
        )


def hisparse_of(args: ServerArgs) -> HiSparseConfig | None:
    """Where the rows of running requests are; None keeps them all on the device."""
    size = model_size(args.model_path, args.json_model_override_args)
    return read_hisparse(args.hisparse_config, size, args.page_size) if args.enable_hisparse else None


def _check_hisparse(args: ServerArgs) -> None:
    how = hisparse_of(args)
    if how is None:
        if args.hisparse_config is not None:
            raise InputError(f"{_HISPARSE_FLAG} without --enable-hisparse")
        return
    if not args.disable_radix_cache:
        raise InputError("--enable-hisparse needs --disable-radix-cache")
    if args.kv_cache_dtype == "fp8_e4m3" and args.dsa_decode_backend == "flashmla_sparse":
        raise InputError(
            "--enable-hisparse with --kv-cache-dtype fp8_e4m3 needs --dsa-decode-backend flashmla_kv or triton"
        )


def _check_layout(parallel: ParallelLayout, size: ModelSize) -> None:
    """Refuse what cannot be split.

    Raises:
        InputError: one line with the flag and what would be allowed.

    """
    tp, dp, ep = parallel.tp, parallel.dp, parallel.ep
    if parallel.dp_attention and (dp == 1 or tp % dp):
        raise InputError(
            f"--enable-dp-attention: --dp-size {dp} is not allowed (allowed: 2 or more that divide --tp-size {tp})"
        )
    if ep > 1 and size.experts is None:
        raise InputError(f"--ep-size: {size.name} has no experts (allowed: 1)")
    if tp % ep:
        raise InputError(f"--ep-size: {ep} does not divide --tp-size {tp}")
    split = {"heads": (size.heads, tp // parallel.groups), "columns of the MLP": (size.intermediate, tp)}
    if size.experts is not None:
        split["experts"] = (size.experts.routed, ep)
        split["columns of the shared expert"] = (size.experts.intermediate, tp)
    for what, (total, ranks) in split.items():
        if total % ranks:
            raise InputError(f"--tp-size: {ranks} ranks cannot share the {total} {what} of {size.name} equally")


def _check_nodes(args: ServerArgs) -> None:
    if args.node_rank >= args.nnodes:
        raise InputError(f"--node-rank: {args.node_rank} is not allowed (allowed: 0 to {args.nnodes - 1})")
    if args.nnodes == 1:
        return
    if args.dist_init_addr is None:
        raise InputError("--nnodes: several need --dist-init-addr, the address of the first one")
    if args.parallel.replicas > 1:
        raise InputError("--nnodes: replicas (--dp-size without --enable-dp-attention) are on one machine")
    if args.parallel.processes % args.nnodes:
        raise InputError(f"--nnodes: {args.nnodes} machines cannot share {args.parallel.processes} ranks equally")


def draft_steps_of(args: ServerArgs) -> int | None:
    """None without speculation. Without numbers it is sglang's choice for these models: 3 steps, 4 tokens.

    Raises:
        InputError: numbers without the algorithm, some without the others, or some that do not fit together.

    """
    given = {
        "--speculative-num-steps": args.speculative_num_steps,
        "--speculative-eagle-topk": args.speculative_eagle_topk,
        "--speculative-num-draft-tokens": args.speculative_num_draft_tokens,
    }
    missing = [flag for flag, value in given.items() if value is None]
    if args.speculative_algorithm is None:
        if len(missing) < len(given):
            extra = next(flag for flag in given if flag not in missing)
            raise InputError(f"{extra} without --speculative-algorithm (allowed: EAGLE, NEXTN)")
        return None
    if len(missing) == len(given):
        return _DEFAULT_STEPS
    if missing:
        raise InputError(f"{missing[0]} is missing: give all three, or none for {_DEFAULT_STEPS} steps")
    steps, topk, tokens = args.speculative_num_steps, args.speculative_eagle_topk, args.speculative_num_draft_tokens
    assert steps is not None, "none is missing"
    if topk != 1:
        raise InputError(f"--speculative-eagle-topk: {topk} is not allowed (allowed: 1, a chain of drafts)")
    if tokens != steps + 1:
        raise InputError(f"--speculative-num-draft-tokens: {tokens} is not allowed (allowed: steps + 1 = {steps + 1})")
    return steps


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m dsabench.reference.launch_server",
        description="Serve a small DSA transformer: `trained`, or one of the others, whose weights are random.",
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model-path", "--model", type=one_of(*SIZES), required=True, help="the model: " + ", ".join(SIZES))
    add("--served-model-name", help="name in /v1/models; the model's if not given")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=whole(0, 65535), default=30000, help="port to listen on; 0 takes a free one")
    add(
        "--device",
        type=one_of("auto", "cpu", "cuda"),
        default="cpu",
        help="cpu or cuda; auto is cuda where there is one",
    )
    add("--dtype", type=one_of("auto", "bfloat16", "float32"), default="auto", help="of weights and activations")
    kv = one_of("auto", "bf16", "bfloat16", "fp8_e4m3")
    add("--kv-cache-dtype", type=kv, default="auto", help="auto is bfloat16")
    prefill = one_of("flashmla_sparse", "flashmla_kv", "flashmla_auto", "triton")
    add("--dsa-prefill-backend", type=prefill, help="flashmla_kv for an fp8 cache, else flashmla_sparse")
    decode = one_of("flashmla_sparse", "flashmla_kv", "triton")
    add("--dsa-decode-backend", type=decode, help="flashmla_kv for an fp8 cache, else flashmla_sparse")
    add("--chunked-prefill-size", type=whole(-1), default=2048, help="new tokens of a prefill step; -1 sets no limit")
    add("--max-running-requests", type=whole(1), help="requests in the running batch")
    limit = "of them, those that run: /set_internal_state changes it"
    add("--pp-max-micro-batch-size", type=whole(1), help=limit)
    add("--max-total-tokens", type=whole(1), help="tokens in the KV pool")
    add("--context-length", type=whole(2), help="longest sequence in tokens")
    add("--page-size", type=whole(1), default=64, help="tokens of a page: " + ", ".join(map(str, PAGE_SIZES)))
    add("--random-seed", type=whole(0), default=0, help="of weights and sampling")
    add("--disable-radix-cache", action="store_true", help="do not reuse the KV of shared prefixes")
    add("--enable-metrics", action="store_true", help="accepted for sglang's sake: /metrics is always there")
    add("--skip-server-warmup", action="store_true", help="be ready without having generated a token")
    levels = one_of("debug", "info", "warning", "error")
    add("--log-level", type=levels, default="info", help="debug, info, warning or error")
    threads = len(os.sched_getaffinity(0))
    add("--cpu-threads", type=whole(1), default=threads, help="threads of CPU operators (not a flag of sglang)")
    add(_OVERRIDES_FLAG, default="{}", help='JSON merged into the model\'s config: {"index_topk_pattern": "FSFS"}')
    algorithm = one_of("EAGLE", "NEXTN")
    add("--speculative-algorithm", type=algorithm, help="guess tokens with the draft head: EAGLE, or NEXTN, the same")
    add("--speculative-num-steps", type=whole(1), help="tokens guessed before each verification")
    add("--speculative-eagle-topk", type=whole(1), help="guesses kept per step: 1")
    add("--speculative-num-draft-tokens", type=whole(2), help="tokens verified at once: steps + 1")
    for names, text in _SIZES_OF_PARALLEL.items():
        add(*names, type=whole(1), default=1, help=text)
    add("--nnodes", type=whole(1), default=1, help="machines that the ranks stand on")
    add("--node-rank", type=whole(0), default=0, help="which of them this is; the first one answers HTTP")
    add("--dist-init-addr", type=_address, help="HOST:PORT of the first one, where the ranks meet")
    mode = one_of("null", "prefill", "decode")
    add("--disaggregation-mode", type=mode, default="null", help="serve one phase only, behind the router")
    port = whole(0, 65535)
    add("--disaggregation-bootstrap-port", type=port, default=8998, help="where prefill hands over to decode")
    add("--enable-hisparse", action="store_true", help="keep hot rows on the device and all rows in host memory")
    add(_HISPARSE_FLAG, help='JSON: {"device_buffer_size": 256, "host_to_device_ratio": 2, "swap_in_block_size": 960}')
    add("--enable-dp-attention", action="store_true", help="dp groups of the tp ranks attend each to own requests")
    return parser


def one_of(*allowed: str) -> Callable[[str], str]:
    """Accept one of a few words."""

    def check(text: str) -> str:
        if text in allowed:
            return text
        near = _nearest(text, allowed)
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed{near} (allowed: {', '.join(allowed)})")

    return check


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Accept an integer in a range."""

    def check(text: str) -> int:
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed (allowed: an integer, {limits})")
        return value

    return check


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (allowed: HOST:PORT)")
    return host.strip("[]"), int(port)


def _nearest(text: str, allowed: Sequence[str]) -> str:
    near = nearest(text, allowed)
    return f"; did you mean {near}?" if near else ""


def model_size(name: str, overrides: str) -> ModelSize:
    """The model of that name with the JSON object merged into it.

    `index_topk` is how many tokens a query attends to. `index_topk_pattern` has a letter per layer (sglang 0.5.23
    model_config.py:506): F computes the indexer, S attends to what the nearest F before it selected. The first is F.

    Raises:
        InputError: no JSON object, an unknown key, a number below 1, or a pattern that does not fit the model.

    """
    size = SIZES[name]
    try:
        given = json.loads(overrides)
    except ValueError as error:
        raise InputError(f"{_OVERRIDES_FLAG}: {overrides!r} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError(f"{_OVERRIDES_FLAG}: {overrides!r} is no JSON object")
    unknown = sorted(given.keys() - {_PATTERN, _TOPK})
    if unknown:
        raise InputError(f"{_OVERRIDES_FLAG}: {unknown[0]}: no such key here (allowed: {_TOPK}, {_PATTERN})")
    topk = given.get(_TOPK, size.index_topk)
    if type(topk) is not int or not 1 <= topk <= size.context:
        raise InputError(
            f"{_OVERRIDES_FLAG}: {_TOPK}: {topk!r} is not allowed (allowed: an integer, 1 to {size.context})"
        )
    size = replace(size, index_topk=topk)
    pattern = given.get(_PATTERN)
    if pattern is None:
        return size
    if not isinstance(pattern, str) or len(pattern) != size.layers or set(pattern) - set("FS") or pattern[0] != "F":
        example = "F" + "S" * (size.layers - 1)
        raise InputError(
            f"{_OVERRIDES_FLAG}: {_PATTERN}: {pattern!r} is not allowed "
            f"(allowed: {size.layers} letters F or S for {name}, the first F, as {example})"
        )
    return replace(size, index_topk_pattern=pattern)


class _HiSparseJson(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    top_k: int | None = Field(None, ge=1)
    device_buffer_size: int | None = Field(None, ge=1)
    host_to_device_ratio: int = Field(2, ge=1)
    swap_in_block_size: int = Field(960, ge=1, le=1024)


def read_hisparse(text: str | None, size: ModelSize, page_size: int) -> HiSparseConfig:
    """Parse the flag; without it the buffer has room for twice what a step attends to. `top_k` is the model's.

    Raises:
        InputError: no such JSON, or a buffer that is too small for one step, or no whole pages.

    """
    try:
        given = _HiSparseJson.model_validate_json("{}" if text is None else text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{_HISPARSE_FLAG}: {place + ': ' if place else ''}{first['msg']} in {json.dumps(text)}"
        ) from error
    least = max(given.top_k or 0, size.index_topk)
    buffer = given.device_buffer_size or -(-2 * least // page_size) * page_size
    if buffer < least:
        raise InputError(f"{_HISPARSE_FLAG}: device_buffer_size ({buffer}) must be no smaller than top_k ({least})")
    if buffer % page_size:
        raise InputError(
            f"{_HISPARSE_FLAG}: device_buffer_size ({buffer}) is not a multiple of --page-size {page_size}"
        )
    return HiSparseConfig(buffer, given.host_to_device_ratio, given.swap_in_block_size)

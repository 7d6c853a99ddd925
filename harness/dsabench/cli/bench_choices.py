"""From the flags of `dsabench bench` to the values that the load generator takes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dsabench.errors import InputError
from dsabench.load.bench_serving.server import BenchControl, auth_headers, vocabulary_of
from dsabench.load.draw.as_bench_serving import DatasetSelection, SharedPrefixShape, TraceReplay
from dsabench.load.draw.tokenizers import NoTokenizer, Tokenizer, load_tokenizer
from dsabench.load.requests import ENDPOINTS, RequestOptions

_PORTS = {"lmdeploy": 23333, "vllm": 8000}
_FAKE_PREFILL = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
"""sglang's FAKE_BOOTSTRAP_HOST (srt/disaggregation/utils.py)."""


def server_for(args: Namespace) -> BenchControl:
    """Where the load goes, with the keys from the environment and `--header`."""
    host = f"[{args.host}]" if ":" in args.host else args.host
    port = args.port or _PORTS.get(args.backend, 30000)
    headers = auth_headers()
    for pair in args.header or ():
        name, _, value = pair.partition("=")
        if not name or not value:
            raise InputError("--header: expected KEY=VALUE")
        headers[name] = value
    return BenchControl((args.base_url or f"http://{host}:{port}").rstrip("/"), headers)


def selection_for(args: Namespace) -> DatasetSelection:
    """What is drawn."""
    return DatasetSelection(
        dataset=args.dataset_name,
        num_prompts=args.num_prompts,
        seed=args.seed,
        path=args.dataset_path or None,
        sha256=args.dataset_sha256,
        input_len=args.random_input_len,
        output_len=args.random_output_len,
        range_ratio=args.random_range_ratio,
        fixed_output_len=args.sharegpt_output_len,
        context_len=args.sharegpt_context_len,
        prompt_suffix=args.prompt_suffix,
        apply_chat_template=args.apply_chat_template,
        as_ids=args.tokenize_prompt,
        shared_prefix=SharedPrefixShape(
            groups=args.gsp_num_groups,
            prompts_per_group=args.gsp_prompts_per_group,
            system_prompt_len=args.gsp_system_prompt_len,
            question_len=args.gsp_question_len,
            output_len=args.gsp_output_len,
            range_ratio=args.gsp_range_ratio,
            ordered=args.gsp_ordered,
            zipf_alpha=args.gsp_zipf_alpha,
            turns=args.gsp_num_turns,
            fast_prepare=args.gsp_fast_prepare,
        ),
        exact=args.draw == "exact",
        trace=TraceReplay(
            args.mooncake_workload,
            args.mooncake_slowdown_factor,
            args.mooncake_num_rounds,
            args.agentic_max_turns,
            args.dataset_offset,
        ),
    )


def options_for(args: Namespace, model: str) -> RequestOptions:
    """What every request asks."""
    endpoint = ENDPOINTS[args.backend]
    if endpoint != "generate" and (args.temperature != 0.0 or args.top_p != 1.0):
        raise InputError(f"--temperature, --top-p: with {args.backend} they go into --extra-request-body")
    extra = dict(args.extra_request_body)
    if args.cache_report and endpoint != "generate":
        extra["return_cached_tokens_details"] = True
    return RequestOptions(
        endpoint=endpoint,
        model=args.served_model_name or model,
        ignore_eos=not args.disable_ignore_eos,
        temperature=args.temperature,
        top_p=args.top_p,
        return_logprob=args.return_logprob,
        top_logprobs_num=args.top_logprobs_num,
        token_ids_logprob=args.token_ids_logprob,
        logprob_start_len=args.logprob_start_len,
        return_routed_experts=args.return_routed_experts,
        extra=extra | (_FAKE_PREFILL if args.fake_prefill else {}),
    )


def tokenizer_for(args: Namespace, server: BenchControl, model: str, info: object) -> Tokenizer:
    """The one named, else the server's, else the model's; none at all for ids below --vocab-size.

    Raises:
        InputError: there is none, or the server (`info` is its /server_info) has fewer ids than are asked for.

    """
    if args.tokenizer is None and args.vocab_size is not None:
        if not args.tokenize_prompt:
            raise InputError("--vocab-size: goes with --tokenize-prompt; text needs --tokenizer")
        known = vocabulary_of(info)
        if known is not None and args.vocab_size > known:
            raise InputError(
                f"--vocab-size {args.vocab_size}: {server.base_url} has {known} ids and refuses others: leave the flag out"
            )
        return NoTokenizer(args.vocab_size)
    return load_tokenizer(args.tokenizer or server.tokenizer_name(info) or model)


def output_path(args: Namespace) -> Path:
    """`--output-file`, else bench_serving's name for it."""
    if args.output_file:
        return Path(args.output_file)
    from datetime import datetime

    parts = [args.backend, datetime.now().astimezone().strftime("%m%d"), args.num_prompts]
    if args.dataset_name.startswith("random"):
        parts += [args.random_input_len, args.random_output_len]
    else:
        parts.append(args.dataset_name)
    return Path("_".join(map(str, parts)) + ".jsonl")

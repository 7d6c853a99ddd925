"""A workload drawn as sglang's bench_serving draws it: the same prompts, warm-up and gaps for the same seed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dsabench.errors import InputError
from dsabench.load.arrivals.exact import draw_departures, follow_trace
from dsabench.load.arrivals.spacings import Times, arrivals_for
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.exact.draw import draw_exact
from dsabench.load.datasets.prompts import Prompts
from dsabench.load.datasets.selection import Selection, SharedPrefix, Trace
from dsabench.load.target import Target
from dsabench.load.tokenizers import Bytewise, IdsOnly, Tokenizer, load_tokenizer
from dsabench.model.sample import Prompt

if TYPE_CHECKING:
    from dsabench.model.workload import Workload

WARM_UP_TOKENS_MAX = 32


def draw_as_bench_serving(target: Target, workload: Workload) -> Prompts:
    """The warm-up is the first prompt again, with at most 32 tokens: flush the cache after it.

    Raises:
        InputError: a file is missing or of another format, or the dataset lacks what it needs.

    """
    dice = Dice.of(workload.seed)
    prompts = tuple(draw_exact(selection_of(workload), _tokenizer(target, workload), dice))
    if len(prompts) < workload.num_prompts:
        raise InputError(
            f"workload {workload.name}: dataset {workload.dataset} has {len(prompts)} prompts for it, num_prompts is"
            f" {workload.num_prompts}"
        )
    first = replace(prompts[0], output_len=min(prompts[0].output_len, WARM_UP_TOKENS_MAX), extra=None)
    return Prompts(prompts, (first,) * workload.warmup_requests, _due_s(workload, prompts, dice))


def selection_of(workload: Workload) -> Selection:
    """What bench_serving's flags would say.

    Raises:
        InputError: the dataset needs a key that is not there.

    """
    random = workload.dataset in {"random", "random-ids"}
    if random and (workload.input_len is None or workload.output_len is None):
        raise InputError(f"workload {workload.name}: dataset {workload.dataset} needs input_len and output_len")
    return Selection(
        dataset=workload.dataset,
        num_prompts=workload.num_prompts,
        seed=workload.seed,
        path=workload.dataset_path,
        sha256=workload.dataset_sha256,
        input_len=workload.input_len or 0,
        output_len=workload.output_len or 0,
        range_ratio=workload.range_ratio,
        fixed_output_len=None if random else workload.output_len,
        context_len=workload.context_len,
        apply_chat_template=workload.apply_chat_template is True,
        as_ids=workload.dataset == "random-ids",
        shared_prefix=_shared_prefix(workload),
        trace=Trace()
        if workload.trace is None
        else Trace("conversation", workload.trace.slowdown, workload.trace.rounds),
    )


def _shared_prefix(workload: Workload) -> SharedPrefix:
    shape = workload.shared_prefix
    if workload.dataset != "generated-shared-prefix":
        return SharedPrefix()
    if shape is None:
        raise InputError(f"workload {workload.name}: dataset generated-shared-prefix needs shared_prefix")
    if shape.groups * shape.prompts_per_group != workload.num_prompts:
        raise InputError(
            f"workload {workload.name}: num_prompts is {workload.num_prompts}, but {shape.groups} groups of"
            f" {shape.prompts_per_group} prompts are {shape.groups * shape.prompts_per_group}"
        )
    return SharedPrefix(
        groups=shape.groups,
        prompts_per_group=shape.prompts_per_group,
        system_prompt_len=shape.system_prompt_len,
        question_len=shape.question_len,
        output_len=shape.output_len,
        range_ratio=shape.range_ratio,
        zipf_alpha=shape.zipf_alpha,
    )


def _tokenizer(target: Target, workload: Workload) -> Tokenizer:
    if workload.tokenizer is not None:
        return load_tokenizer(workload.tokenizer)
    if workload.dataset == "random-ids" and target.vocab_size is not None:
        return IdsOnly(target.vocab_size)
    if target.tokenizer == "bytes":
        return Bytewise()
    raise InputError(
        f"workload {workload.name}: dataset {workload.dataset} counts tokens, and the tokenizer of {target.model} is not"
        " known here; give tokenizer (a folder with tokenizer.json)"
    )


def _due_s(workload: Workload, prompts: tuple[Prompt, ...], dice: Dice) -> Times:
    """A trace's own times, else Poisson gaps from the state that the prompts left behind, else our spacings."""
    if workload.dataset == "mooncake":
        return follow_trace(prompts).due_s
    if workload.arrivals == "poisson":
        return draw_departures(len(prompts), workload.request_rate or math.inf, dice.legacy).due_s
    return arrivals_for(workload).times_s(len(prompts), np.random.default_rng([workload.seed, 1]))

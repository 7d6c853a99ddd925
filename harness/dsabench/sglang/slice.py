"""One GPU's share of a deployment as a model of its own: the same kernels on the same shapes, without communication.

With D attention groups over G ranks, A = G / D ranks share the heads of a group. A rank computes for its group's T
tokens: heads / A, the dense layers' and the vocabulary's columns / A (tokens of all D groups at 1 / G of the width are
those of one group at 1 / A), and T × active / A expert rows, over experts / G whole experts (EP) or all experts at
1 / G of their width (TP).

What a rank does for the tokens of all groups is not in it: under DP attention without an all-to-all backend they are
gathered before the experts, so the router, the quantisation of activations and the sum over each token's experts work
on D × T tokens, and two all-reduces a layer move them (0.5.16 srt/layers/dp_attention.py, `DpPaddingMode`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from dsabench.errors import InputError
from dsabench.model.value import KnobValue
from dsabench.sglang.models import QUANTIZATION, WIDTHS, Widths

HEAD_BLOCK = 64
"""flashmla_sparse pads a rank's heads to this many on Hopper (0.5.16 srt/layers/attention/dsa_backend.py)."""
_BLOCK = 128
"""fp8 weights are scaled in blocks of this width."""
_GROUP_EXPERTS = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """How a deployment spreads over its GPUs."""

    gpus: int
    dp: int
    """Groups of the attention."""
    ep: int
    mtp: bool

    @property
    def attn_tp(self) -> int:
        """Ranks that share one group's heads."""
        return self.gpus // self.dp

    @property
    def whole_experts(self) -> bool:
        """Whether a rank has whole experts: with EP, and in place of thin ones where groups are joined for the MoE."""
        return self.ep > 1 or self.dp > 1


@dataclass(frozen=True, slots=True)
class Slice:
    """What one GPU computes."""

    model: str
    shape: Shape
    config: dict[str, JsonValue]
    """The contents of config.json."""
    knobs: dict[str, KnobValue]
    """Settings of the one-GPU server: the deployment's, per rank."""
    notes: tuple[str, ...]
    """Where it differs from the rank that it stands for, and what it cannot show."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the whole deployment that DP attention divides."""

    chunked_prefill_size: int = 8192
    """The runtime's default on an H200."""
    max_running_requests: int = 256
    accept_length: float | None = None


def parse_strategy(text: str, gpus: int) -> Shape:
    """`tp8`, `dp8,ep8`, `tp2,dp4,ep8`, each with `mtp`; tp is that of the attention.

    Raises:
        InputError: a word that is none, or sizes that do not fit the GPUs.

    """
    sizes: dict[str, int] = {}
    mtp = False
    for word in filter(None, (part.strip().lower() for part in text.split(","))):
        match = re.fullmatch(r"(tp|dp|ep)(\d+)", word)
        if word == "mtp":
            mtp = True
        elif word == "hisparse":
            raise InputError(
                "--strategy hisparse: its hit rates come from the values, which random weights do not have"
            )
        elif match is None or int(match[2]) < 1:
            raise InputError(f"--strategy: {word!r} is none of tpN, dpN, epN, mtp (as in dp8,ep8)")
        else:
            sizes[match[1]] = int(match[2])
    dp = sizes.get("dp", 1)
    tp = sizes.get("tp", max(1, gpus // dp))
    ep = sizes.get("ep", 1)
    if tp * dp != gpus:
        raise InputError(f"--strategy: attention tp{tp} × dp{dp} is {tp * dp} ranks, and there are {gpus} GPUs")
    if ep not in {1, gpus}:
        raise InputError(f"--strategy: ep{ep} does not spread over the {gpus} GPUs; take ep{gpus}, or leave it out")
    return Shape(gpus, dp, ep, mtp)


def cut(model: str, shape: Shape, layers: int, limits: Limits) -> Slice:
    """The share of one GPU.

    Raises:
        InputError: a model that is not known, or widths that the ranks cannot share.

    """
    widths = WIDTHS.get(model)
    if widths is None:
        raise InputError(f"--model: {model} is none of {', '.join(WIDTHS)}")
    if not 2 <= layers <= widths.layers:
        raise InputError(f"--layers: {layers} is not between 2 (one dense, one with experts) and {widths.layers}")
    if widths.heads % shape.attn_tp or widths.experts % shape.gpus:
        raise InputError(
            f"--strategy: {shape.gpus} ranks cannot share {widths.heads} heads and {widths.experts} experts"
        )
    if shape.mtp and limits.accept_length is None:
        raise InputError("--strategy mtp: random weights accept no draft; pin what was measured: --accept-length 2.5")
    config = _config(widths, shape, layers)
    return Slice(model, shape, config, _knobs(shape, limits), tuple(_notes(widths, shape, layers, limits)))


def _config(widths: Widths, shape: Shape, layers: int) -> dict[str, JsonValue]:
    share = shape.attn_tp
    experts = widths.experts // shape.gpus if shape.whole_experts else widths.experts
    active = max(1, widths.active_experts // share) if shape.whole_experts else widths.active_experts
    groups = max(1, min(widths.expert_groups, experts // _GROUP_EXPERTS))
    moe_intermediate = widths.moe_intermediate if shape.whole_experts else widths.moe_intermediate // shape.gpus
    return {
        **widths.config_json(),
        "first_k_dense_replace": max(1, round(widths.dense_layers * layers / widths.layers)),
        "intermediate_size": _blocks(widths.intermediate // share),
        "moe_intermediate_size": moe_intermediate,
        "n_group": groups,
        "topk_group": max(1, min(widths.chosen_groups, groups // 2)),
        "n_routed_experts": experts,
        "num_experts_per_tok": active,
        "num_attention_heads": widths.heads // share,
        "num_key_value_heads": widths.heads // share,
        "num_hidden_layers": layers,
        "vocab_size": widths.vocabulary // share // 64 * 64,
        **QUANTIZATION["fp8"],
        "dsabench_slice": {"gpus": shape.gpus, "dp": shape.dp, "ep": shape.ep, "of_layers": widths.layers},
    }


def _blocks(width: int) -> int:
    return -(-width // _BLOCK) * _BLOCK


def _knobs(shape: Shape, limits: Limits) -> dict[str, KnobValue]:
    knobs: dict[str, KnobValue] = {
        "chunked_prefill_size": max(1, limits.chunked_prefill_size // shape.dp),
        "max_running_requests": max(1, limits.max_running_requests // shape.dp),
        "load_format": "dummy",
        "tokenizer": False,
        "trust_remote_code": True,
        "random_seed": 1,
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
    }
    if shape.mtp and limits.accept_length is not None:
        knobs |= {
            "speculative_algorithm": "EAGLE",
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
            "simulated_accept_length": limits.accept_length,
        }
    return knobs


def _notes(widths: Widths, shape: Shape, layers: int, limits: Limits) -> Iterator[str]:
    heads = widths.heads // shape.attn_tp
    padded = f", computed as {HEAD_BLOCK} by flashmla_sparse on Hopper" if heads < HEAD_BLOCK else ""
    yield f"{heads} heads per rank{padded}"
    yield f"{layers} of {widths.layers} layers: times of a layer add up, those of embedding, head and scheduler do not"
    yield "no communication: what all-reduce, all-gather and expert exchange cost is left out"
    if shape.dp > 1:
        yield (
            f"own tokens alone: without an all-to-all backend a rank routes, quantises and sums up the tokens of all "
            f"{shape.dp} groups; and no rank waits for one that began a step later"
        )
    yield "random weights: outputs, accuracy and expert balance mean nothing; routing is near uniform"
    if shape.dp > 1 and shape.ep == 1:
        yield "experts are whole, 1 / GPUs of them, where the deployment has all at 1 / GPUs of the width: same work and bytes"
    if shape.attn_tp > 1 and shape.whole_experts:
        yield "the shared expert is whole, where a rank has 1 / GPUs of its width"
    if shape.attn_tp > widths.active_experts and shape.whole_experts:
        yield f"one active expert per token, where a rank has {widths.active_experts / shape.attn_tp:g} on average"
    if shape.mtp:
        yield f"accept length pinned to {limits.accept_length:g} (SGLANG_SIMULATE_ACC_LEN): labelled simulated"

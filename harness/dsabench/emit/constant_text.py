"""The text of a pull request that puts one rule into the source: under which conditions it holds, then what it brings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsabench.emit.pr_body import measured_with
from dsabench.emit.pull_request import Branch
from dsabench.model.tuned_table import RatioRule, ShapeGains, TunedTable
from dsabench.model.workload import Workload

_ROW_BYTES = 2 * (512 + 64)
"""Of a token's latent and rope in bfloat16, which flashmla_sparse reads."""
_EXAMPLE_NEW = 8192


@dataclass(frozen=True, slots=True)
class LaunchedEffect:
    """The rule on batches that were timed with their launches."""

    shapes: int
    lost: float
    """Mean share of time lost against the faster kernel of each shape."""
    lost_shipped: float
    """The same with flashmla_kv always."""
    slowest: float
    """Largest share of time that a shape loses against flashmla_kv."""
    sparse_mib: float
    """Most that a call of flashmla_sparse allocated, where the rule takes it."""
    kv_mib: float
    """Most that a call of flashmla_kv allocated."""


@dataclass(frozen=True, slots=True)
class TableEffect:
    """The shared rule on the shapes of one table. Gains are in sample."""

    table: TunedTable
    chunks: tuple[int, ...]
    """New tokens of a step on one rank at most, under each chunk size of the config."""
    workloads: tuple[Workload, ...]
    excess: float
    """Mean share of time that it costs more than the table's own rule."""
    gains: ShapeGains
    shapes: int
    new_tokens: tuple[int, int]
    kv_tokens: tuple[int, int]
    launched: LaunchedEffect | None = None


def constant_body(
    branch: Branch,
    rule: RatioRule,
    effects: Sequence[TableEffect],
    *,
    elsewhere: Sequence[tuple[str, int, LaunchedEffect]],
    script: str,
    dsabench: str,
    measured: str | None,
) -> str:
    """Markdown. `measured` is what servers with and without the rule came to, as Markdown; None: nobody compared them."""
    few = f"a batch has at least {rule.from_new_tokens} new tokens and " if rule.from_new_tokens else ""
    parts = [
        (
            f"On Hopper with an fp8 KV cache, prefill now takes flashmla_sparse where {few}the KV cache holds fewer than "
            f"{rule.kv_per_new_token:g} tokens per new token, and flashmla_kv otherwise. Blackwell is as before. "
            "`--dsa-prefill-backend flashmla_kv` is what Hopper had."
        ),
        "\n## Conditions\n",
        *(f"- {line}" for line in (_where(effects, elsewhere), *_conditions(branch, rule, effects))),
        "\n## Sparse attention of one layer\n",
        "| heads per rank | speed, weighted | at least | median | shapes | more time than a rule fitted to these heads alone |",
        "|--:|--:|--:|--:|--:|--:|",
        *(_row(effect) for effect in effects),
        (
            "\nWeighted by the prefill batches of the workloads, a fifth of the weight spread evenly over all shapes. The numbers are the "
            "roundest ones near the best that slow no shape down by more than the noise of its times. They were chosen on these shapes."
        ),
        *_with_launches(effects),
        "\n## Servers\n",
        measured or "Servers with and without this rule were not compared.",
        "\n## Accuracy\n",
        (
            "Both kernels attend to the same tokens. One reads packed fp8, the other the same values as bfloat16, so they round "
            "differently. No eval was run for this."
        ),
        "\n## Measure it again\n",
        (
            f"`{script}` (attached) needs SGLang alone: it times both kernels, prints the memory that a call takes, and finds the pair of "
            "numbers."
        ),
        "",
        "```console",
        f"python {script} --heads {' '.join(str(effect.table.heads_per_rank) for effect in effects)}",
        "```",
        "\n## Where the numbers are from\n",
        *(
            f"- {one.table.heads_per_rank} heads: {one.table.evidence.label} {measured_with(one.table.evidence)}."
            for one in effects
        ),
        f"- Written by dsabench {dsabench} on top of `{branch.base[:12]}`: {branch.changed_lines} changed lines with the test.",
    ]
    return "\n".join(parts) + "\n"


def _conditions(branch: Branch, rule: RatioRule, effects: Sequence[TableEffect]) -> Iterable[str]:
    tables = [effect.table for effect in effects]
    timed = sorted({table.evidence.versions.get("sglang", "unknown") for table in tables})
    yield f"Timed with SGLang {', '.join(timed)}; this is {branch.version}." + (
        " The kernels may have changed since." if timed != [branch.version] else ""
    )
    heads = ", ".join(str(table.heads_per_rank) for table in tables)
    topk = ", ".join(sorted({str(table.index_topk) for table in tables}))
    yield f"Heads per rank: {heads}; index_topk {topk}; fp8 KV cache. No context parallelism, and not inside a CUDA graph: there it stays flashmla_kv."
    low, high = (_outer(effect.new_tokens for effect in effects), _outer(effect.kv_tokens for effect in effects))
    yield f"Batches of {low[0]:,} to {low[1]:,} new tokens with {high[0]:,} to {high[1]:,} in the KV cache."
    for effect in effects:
        chunks = ", ".join(f"{chunk:,}" for chunk in effect.chunks)
        yield f"Weights for {effect.table.heads_per_rank} heads: {chunks} prefill tokens a step and rank; {_loads(effect.workloads)}."
    ratio = rule.kv_per_new_token
    tokens = ratio * _EXAMPLE_NEW
    yield (
        f"Memory: flashmla_sparse dequantises the whole prefix of a batch, {_ROW_BYTES:,} bytes a token, for one layer at a time. At most "
        f"{ratio:g} × the new tokens are dequantised: {tokens * _ROW_BYTES / 2**20:,.0f} MiB for {_EXAMPLE_NEW:,} new tokens "
        f"({tokens:,.0f} in the KV cache), beside what `--mem-fraction-static` left."
    )
    if all(effect.launched is not None for effect in effects):
        measured = ", ".join(
            f"{one.sparse_mib:,.0f} against {one.kv_mib:,.0f} MiB at {effect.table.heads_per_rank} heads"
            for effect in effects
            if (one := effect.launched) is not None
        )
        yield f"Most that a call allocated, flashmla_sparse under this rule against flashmla_kv: {measured}."
    else:
        yield "The times are inside CUDA graphs, without launches: small eager batches may differ. The script times them with launches."


def _where(effects: Sequence[TableEffect], elsewhere: Sequence[tuple[str, int, LaunchedEffect]]) -> str:
    """The GPUs that the numbers are from, and what is known of others."""
    devices = ", ".join(sorted({effect.table.device.replace("_", " ") for effect in effects}))
    found = [
        f"{heads} heads lose {one.lost:.2%} on the faster kernel (flashmla_kv always: {one.lost_shipped:.2%}), the slowest shape "
        f"{one.slowest:+.1%} in time against flashmla_kv"
        for _, heads, one in elsewhere
    ]
    if not found:
        return f"The numbers are from {devices} alone. Other Hopper GPUs have other memory and other speeds: the script tells."
    others = ", ".join(sorted({gpu.replace("_", " ") for gpu, _, _ in elsewhere}))
    return f"The numbers are from {devices} alone. On {others}, with launches: {'; '.join(found)}."


def _outer(ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = list(ranges)
    return min(low for low, _ in found), max(high for _, high in found)


def _loads(workloads: Sequence[Workload]) -> str:
    at_once = sorted({one.max_concurrency for one in workloads if one.max_concurrency is not None})
    answers = sorted({one.output_len for one in workloads if one.output_len is not None})
    said = [
        f"requests at once: {', '.join(map(str, at_once))}" if at_once else "requests at once: not limited",
        f"answer tokens: {', '.join(map(str, answers))}" if answers else "answer tokens: as the data says",
    ]
    return "; ".join(said)


def _with_launches(effects: Sequence[TableEffect]) -> Iterable[str]:
    """The times of the script, where there are any."""
    found = [(effect, effect.launched) for effect in effects if effect.launched is not None]
    if not found:
        return
    yield "\nThe times above are inside CUDA graphs. With their launches, as eager prefill runs them, every shape equal in weight:\n"
    yield "| heads per rank | lost on the faster kernel | flashmla_kv always | slowest shape against flashmla_kv | shapes |\n|--:|--:|--:|--:|--:|"
    for effect, one in found:
        yield (
            f"| {effect.table.heads_per_rank} | {one.lost:.2%} | {one.lost_shipped:.2%} | {one.slowest:+.1%} in time | {one.shapes} |"
        )


def _row(effect: TableEffect) -> str:
    values = (effect.gains.weighted, effect.gains.least, effect.gains.median)
    cells = [f"{value:+.1%}" for value in values]
    return f"| {effect.table.heads_per_rank} | {' | '.join(cells)} | {effect.shapes} | {effect.excess:+.2%} |"

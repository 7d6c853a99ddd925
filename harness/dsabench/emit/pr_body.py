"""The pull request for tuned tables: its branch, and the text that says what changes, what it gains and where its limits are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

import dsabench
from dsabench.emit.pull_request import Branch, commit_tables
from dsabench.emit.tables import File
from dsabench.errors import StoreError
from dsabench.model.tuned_table import (
    BufferRule,
    ConstantRule,
    GateEvidence,
    GridRule,
    LaunchRule,
    RatioRule,
    Rule,
    ShapeGains,
    StepsRule,
    TableEvidence,
    ThresholdRule,
    TunedTable,
)

_ABOUT = {
    "flashmla_auto": "`flashmla_auto` reads which sparse prefill kernel a batch gets from a table per device, heads per rank "
    "and index_topk. On Hopper with an fp8 KV cache a table also makes `flashmla_auto` the default prefill backend and is "
    "asked without the Blackwell check.",
    "mha_threshold": "The longest sequence that is prefilled with dense MHA comes from a table where no variable is set.",
    "hisparse": "HiSparse's buffers take their defaults from a table where `--hisparse-config` names none.",
}


_HOW = {
    "flashmla_auto": "flashmla_auto: times are of sparse attention alone, weighted by the prefill batches that the workloads of "
    "the config named below bring, a fifth of the weight spread evenly over all shapes. Regret is the mean "
    "share of time lost against the faster kernel of each shape, that of the table cross-validated; today's and the best static "
    "kernel's take no fit.",
}
_MEASURE = (
    "# both kernels' times, with the interpreter that has sglang; the fits below read them from the folder of --kernels\n"
    "dsabench kernels bench sparse_prefill --dtypes fp8 --kernel-python PYTHON --results FOLDER"
)


TEXT = "pull-request.md"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A branch, and what to send with it."""

    branch: Branch
    title: str
    files: dict[str, bytes]
    """By name in the folder of the text, which is among them."""
    facts: dict[str, JsonValue] = field(default_factory=dict)
    """More for programs."""

    def write(self, folder: Path) -> Path:
        """Write the text, what to attach to it, and the commits as a patch. Returns the text's path.

        Raises:
            StoreError: the folder cannot be written.

        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in {**self.files, "commits.patch": self.branch.patch()}.items():
                (folder / name).write_bytes(content)
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}: the text was not written") from error
        return folder / TEXT


def request_tables(checkout: Path, files: Sequence[File], branch: str, measured: str | None) -> PullRequest:
    """Commit the tables on a branch, and write the text. `measured` is as of `body_of`.

    Raises:
        InputError: as of `commit_tables`.
        StoreError: git failed.

    """
    made = commit_tables(checkout, files, branch)
    drawn = [figure for file in files if (figure := file.path.with_suffix(".svg")).is_file()]
    figures = {f"figure-{number}.svg": figure.read_bytes() for number, figure in enumerate(drawn, 1)}
    text = body_of(made, files, [Path(name) for name in figures], dsabench.__version__, measured)
    devices = ", ".join(sorted({file.table.device for file in files}))
    return PullRequest(made, f"[DSA] Tuned defaults for {devices}", {TEXT: text.encode(), **figures})


def body_of(
    branch: Branch, files: Sequence[File], figures: Sequence[Path], dsabench: str, measured: str | None = None
) -> str:
    """Markdown. `measured` is what servers with and without the tables came to, as Markdown; None: nobody compared them."""
    kinds = sorted({file.table.kind for file in files})
    about = (
        ["Tables alone: the code that reads them is there."] if branch.is_tables_alone else [_ABOUT[k] for k in kinds]
    )
    parts = [
        "## What changes\n",
        *(f"- {line}" for line in about),
        (
            "- No table, no change: without a matching file every function gives back today's value. Flags and environment "
            "variables of the user win over tables, as with the tuned MoE configs."
        ),
        "",
        *(f"- `{name}`" for name in branch.files),
        "\n## Effect\n",
        "| table | rule | metric | against today | regret | today's | best static |\n|---|---|---|---|---|---|---|",
        *(_row(file.table) for file in files),
        *(f"\n{_HOW[kind]}" for kind in kinds if kind in _HOW),
        *(f"\n![{figure.stem}]({figure.name})" for figure in figures),
        "\n## At the server\n",
        measured
        or "Servers with and without these tables were not compared; the table above is of kernels or of a sweep.",
        "\n## Accuracy\n",
        *dict.fromkeys(line for file in files for line in accuracy_of(file.table)),
        "\n## Measure it again\n",
        "```console",
        *([_MEASURE] if "flashmla_auto" in kinds and any(f.table.runtime == "sglang" for f in files) else []),
        *(file.table.evidence.command or "# no command is recorded" for file in files),
        "```",
        "\n## Where the numbers are from\n",
        *(_provenance(file.table) for file in files),
        f"- Written by dsabench {dsabench} on top of `{branch.base[:12]}`.",
        "\n## Limits\n",
        *dict.fromkeys(f"- {line}" for file in files for line in _limits(file.table)),
        *(f"- {note}." for note in branch.notes),
        *(
            ["- At the server this was not shown for every table above: see there for what was served."]
            if measured
            else []
        ),
    ]
    return "\n".join(parts) + "\n"


def _row(table: TunedTable) -> str:
    evidence = table.evidence
    gain = "not measured"
    if evidence.gains is not None:
        gain = f"speed {gains_in_words(evidence.gains, evidence.n)}"
    elif evidence.ci_low is not None and evidence.ci_high is not None:
        gain = f"{evidence.ci_low:+.1%} … {evidence.ci_high:+.1%} (95 % or more, {evidence.n or '?'} boots a side)"
    regrets = (evidence.regret, evidence.regret_shipped, evidence.regret_static)
    cells = ["–" if regret is None else f"{regret:.2%}" for regret in regrets]
    name = f"{table.kind}, {table.device}, {table.heads_per_rank} heads, {table.kv_cache_dtype}"
    return f"| {name} | {rule_in_words(table.rule)} | {evidence.metric or '–'} | {gain} | {' | '.join(cells)} |"


def gains_in_words(gains: ShapeGains, shapes: int | None) -> str:
    """One line for people."""
    return (
        f"{gains.weighted:+.1%} weighted, {gains.least:+.1%} at least, {gains.median:+.1%} in the median of {shapes} shapes "
        f"({gains.effective_shapes:g} by weight); slower: {gains.slower_shapes or 'none'}"
    )


def rule_in_words(rule: Rule) -> str:
    """One line for people."""
    match rule:
        case ConstantRule():
            said = f"always {rule.kernel}"
        case RatioRule():
            few = "" if rule.from_new_tokens is None else f"from {rule.from_new_tokens} new tokens, and "
            said = f"flashmla_sparse {few}where KV tokens < {rule.kv_per_new_token:g} × new tokens, else flashmla_kv"
        case GridRule():
            said = _grid_in_words(rule)
        case ThresholdRule():
            said = f"dense MHA up to {rule.max_tokens} tokens"
        case StepsRule():
            slots = zip(rule.batch_sizes, rule.steps, rule.candidates, strict=True)
            said = "draft steps " + "; ".join(
                f"{best} from {batch} requests on (moves among {', '.join(map(str, some))})"
                for batch, best, some in slots
            )
        case LaunchRule():
            said = ", ".join(f"{name} {value}" for name, value in rule.settings.items())
        case BufferRule():
            block = "" if rule.swap_in_block_size is None else f", {rule.swap_in_block_size} threads a block"
            said = f"{rule.device_buffer_size} slots on the device, host pool {rule.host_to_device_ratio} × the device's{block}"
    return said


def _grid_in_words(rule: GridRule) -> str:
    rows = []
    for edge, kernels in zip(rule.new_tokens, rule.kernels, strict=True):
        ends = (*rule.kv_tokens[1:], None)
        below = [kv for kv, kernel in zip(ends, kernels, strict=True) if kernel == "flashmla_sparse"]
        if below:
            rows.append(
                f"from {edge} new tokens" + ("" if below[-1] is None else f" below {below[-1]} in the KV cache")
            )
    return f"flashmla_sparse {'; '.join(rows)}; else flashmla_kv" if rows else "always flashmla_kv"


def accuracy_of(table: TunedTable) -> list[str]:
    """What is known of the answers under it, as Markdown points."""
    if table.kind == "flashmla_auto":
        return [
            f"- {table.kind} ({table.device}): both kernels compute the same attention over the same tokens; they round "
            "differently (one reads packed fp8, the other the same values as bfloat16). No eval was run for it."
            if not table.evidence.gates
            else f"- {table.kind} ({table.device}): {_gates(table.evidence.gates)}"
        ]
    if table.changes_numerics:
        return [f"- {table.kind} ({table.device}) changes answers: {_gates(table.evidence.gates)}"]
    if table.kind == "launch":
        said = _gates(table.evidence.gates) if table.evidence.gates else "no eval was run for it"
        return [
            f"- {table.kind} ({table.device}): dtypes and dense length stay; additions may come in another order; {said}."
        ]
    return [f"- {table.kind} ({table.device}): numerics stay as they are."]


def _gates(gates: Sequence[GateEvidence]) -> str:
    said = []
    for gate in gates:
        points = "" if gate.difference is None else f", {gate.difference * 100:+.2f} points"
        low = "" if gate.ci_low is None else f", at worst {gate.ci_low * 100:+.2f}"
        said.append(
            f"{gate.eval}{' (agreement with the default)' if gate.measure == 'agreement' else ''} {gate.verdict}{points}{low} (margin {gate.margin * 100:g} points, {gate.n or '?'} questions)"
        )
    return "; ".join(said) or "no eval"


def measured_with(evidence: TableEvidence) -> str:
    """Versions and digest, one line for people."""
    versions = (
        ", ".join(f"{name} {version}" for name, version in sorted(evidence.versions.items())) or "versions unknown"
    )
    digest = f", samples sha256 `{evidence.samples_sha256[:16]}…`" if evidence.samples_sha256 else ""
    return f"with {versions}{digest}"


def _provenance(table: TunedTable) -> str:
    return f"- `{table.file_name}`: {table.evidence.label} on {table.device} {measured_with(table.evidence)}."


def _limits(table: TunedTable) -> list[str]:
    lines = [f"{table.kind}: {condition}." for condition in table.evidence.conditions]
    if table.evidence.label == "simulated":
        lines.append(f"{table.kind}: simulated, it rests on what random weights select.")
    return [*lines, f"{table.kind}: other GPUs, heads per rank and KV dtypes keep today's behaviour."]

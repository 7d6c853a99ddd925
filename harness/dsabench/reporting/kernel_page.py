"""Which candidate is fastest where: one page with coloured tables of shapes and the numbers behind them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from dsabench.errors import InputError, StoreError
from dsabench.kernelbench.records import KernelMeasurement
from dsabench.kernelbench.summary import are_apart
from dsabench.reporting.kernel_map import HeatCell, heat_tables, natural
from dsabench.reporting.kernel_shares import Share, shares

Group = tuple[str, str]
"""Operator and dtype."""

_WORDS = (
    "Median time of one call; × floor is that time as a multiple of the least work at the bandwidth and speed of the same "
    "run, by candidate the median over shapes, and TB/s and TFLOP/s are that least work in the time. Below 1 is faster than "
    "they are: where a kernel computes in fp8, or in older runs, whose bandwidth is a copy's alone (on an H200 2.76 TB/s of "
    "4.25). Candidates whose intervals touch, or whose medians are within 1 %, are not told apart; they are compared where "
    "they were measured in one environment alone. The error is that of the worst row against a reference in float64; a "
    "kernel that is faster because it rounds more has the larger one. Back to back is the time of a call, with warm caches, when "
    "nothing else ran for some tenths of a second or more, and the clock that the GPU had then."
)
_STYLE = """:root{color-scheme:light dark;--text:#1c2024;--quiet:#5b636d;--line:#e2e5e9;--ground:#fff}
@media (prefers-color-scheme:dark){:root{--text:#e4e7eb;--quiet:#9ba4af;--line:#2f363e;--ground:#14171a}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:66rem;padding:0 1rem;color:var(--text);background:var(--ground)}
p{max-width:48rem;overflow-wrap:anywhere}.facts{color:var(--quiet);font-size:.9rem}h2{margin-top:2.5rem}
.wide{overflow-x:auto;margin:.8rem 0}h3{font-size:1rem;margin:1.2rem 0 .3rem}.map{font-size:.78rem}.map caption{text-align:left;color:var(--quiet)}
.map td,.map th{text-align:center!important;padding:.15em .45em;border:1px solid var(--ground)}.heat{color:#111;padding:.1em .5em;border-radius:3px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}summary{cursor:pointer;color:var(--quiet)}
td,th{padding:.2em .7em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
td:first-child,td:nth-child(2),th:first-child,th:nth-child(2){text-align:left}nav a{margin-right:1rem;color:inherit}"""
_DOES = {
    "indexer_ragged": "Lightning-indexer logits of a prefill chunk: how much each cached token matters to each new one.",
    "indexer_paged": "Lightning-indexer logits of a decode or verify step, keys in pages.",
    "topk_select": "Selection of the largest logits of each new token (2,048 in the real models), as rows of the cache.",
    "sparse_prefill": "Attention of a prefill chunk over the selected tokens; with an fp8 cache what dequantises it is in the time.",
    "sparse_decode": "Attention of a decode step over the selected tokens, one new token a sequence.",
    "mtp_verify": "Attention of an MTP verify step over the selected tokens, 2 or 4 new tokens a sequence.",
    "dense_prefill": "Dense attention (MHA) of a prefill chunk over all tokens: what sparse attention is held against.",
    "absorb": "The two products around sparse attention: queries into latent space, outputs out of it.",
    "kv_expand": "Latent rows to keys and values of every head, which dense attention needs first.",
    "kv_quantise": "The new tokens' rows from bfloat16 to packed fp8 (in the real models 656 bytes a token).",
    "kv_dequantise": "Packed fp8 rows of a whole prefix to bfloat16.",
    "hisparse_swap_in": "Selected rows that only the host's memory has, into the GPU's hot buffer.",
}
"""What an operator is, for a reader who has only the page. (The operators' own words need torch to be imported.)"""
_OVER_THE_LINK = "hisparse_swap_in"
_SHARES = (
    "rank",
    "candidate",
    "shapes",
    "fastest",
    "not told apart",
    "of the fastest",
    "lowest",
    "× floor",
    "largest error",
    "back to back",
)
_POINTS = ("shape", "candidate", "median µs", "MAD", "n", "TB/s", "TFLOP/s", "× floor", "error", "status",
           "back to back µs", "MHz", "W", "held down by")  # fmt: skip
_SUSTAINED = ("back to back", "back to back µs", "MHz", "W", "held down by")
"""Columns that are left out where no row has a word in them: few runs measure it."""


def write_page(measurements: Sequence[KernelMeasurement], folder: Path, home: str | None = None) -> Path:
    """Write `index.html`; `home`: the page that it leads back to.

    Raises:
        InputError: nothing has a time.
        StoreError: the folder cannot be written.

    """
    groups: dict[Group, list[KernelMeasurement]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.operator, measurement.dtype].append(measurement)
    if not any(m.status == "ok" and m.median_us for m in measurements):
        raise InputError("nothing to report: no point has a time; run `dsabench kernels bench` first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = [_section(group, members) for group, members in sorted(groups.items())]
        page = folder / "index.html"
        page.write_text(_page(measurements, parts, _nav(sorted(groups), home)), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}: the report was not written") from error
    return page


def _nav(groups: Sequence[Group], home: str | None) -> str:
    back = "" if home is None else f"<a href='{escape(home)}'>Overview</a> "
    links = "".join(f"<a href='#{escape(_anchor(group))}'>{escape(', '.join(group))}</a> " for group in groups)
    return f"<nav>{back}{links}</nav>"


def _page(measurements: Sequence[KernelMeasurement], parts: Sequence[str], nav: str) -> str:
    machines = sorted({_machine(m) for m in measurements})
    return "\n".join(
        [
            "<!doctype html><html lang='en'><meta charset='utf-8'>",
            f"<meta name='viewport' content='width=device-width,initial-scale=1'><title>Kernels</title><style>{_STYLE}</style>",
            f"<h1>Kernels</h1><p>{_WORDS}</p>",
            *(
                f"<p class='facts'>Measured on {escape(machine + _ceilings(measurements, machine))}</p>"
                for machine in machines
            ),
            nav,
            *parts,
        ]
    )


def _machine(m: KernelMeasurement) -> str:
    hardware, runtime = m.environment.hardware, m.environment.runtime
    place = hardware.gpus[0].name if hardware.gpus else f"{hardware.cpu}, {m.threads} thread(s)"
    packages = "".join(f", {name} {version}" for name, version in sorted((runtime.packages or {}).items()))
    return f"{place}, torch {runtime.torch}{packages}; environment {m.environment.fingerprint}"


def _ceilings(measurements: Sequence[KernelMeasurement], machine: str) -> str:
    """The bandwidths and speeds that its floors rest on, lowest and highest of its runs."""
    mine = [m for m in measurements if _machine(m) == machine]
    said = []
    for unit, values, digits in (
        ("TB/s", [m.ceiling_tb_s for m in mine if m.ceiling_tb_s is not None], 2),
        ("TFLOP/s", [m.ceiling_tflop_s for m in mine if m.ceiling_tflop_s is not None], 0),
        ("GB/s from the host", [m.ceiling_link_gb_s for m in mine if m.ceiling_link_gb_s is not None], 1),
    ):
        if values:
            ends = dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values)))
            said.append(f"{' to '.join(ends)} {unit}")
    return f"; floors at {', '.join(said)}" if said else ""


def _anchor(group: Group) -> str:
    return "-".join(group)


def _section(group: Group, members: Sequence[KernelMeasurement]) -> str:
    title = ", ".join(group)
    cells = [cell for shape in _by_shape(members) if (cell := _cell(shape))]
    ordered = sorted(members, key=lambda m: (natural(m.shape_id), m.median_us or float("inf")))
    points = _table(_POINTS, [_row(m) for m in ordered])
    return (
        f"<h2 id='{escape(_anchor(group))}'>{escape(title)}</h2>{_does(group, members)}{heat_tables(cells) if cells else ''}"
        f"{_table(_SHARES, [_share_row(share) for share in shares(members)])}{_without_time(members)}"
        f"<details><summary>{len(members):,} points</summary>{points}</details>"
    )


def _does(group: Group, members: Sequence[KernelMeasurement]) -> str:
    says = [_DOES[group[0]]] if group[0] in _DOES else []
    if any(m.operator == _OVER_THE_LINK and m.environment.hardware.gpus and m.link_bytes is None for m in members):
        says.append(
            "Of points whose host link was not measured the floor is at the bandwidth of the GPU's own memory: × floor "
            "means nothing there."
        )
    return f"<p>{escape(' '.join(says))}</p>" if says else ""


def _without_time(members: Sequence[KernelMeasurement]) -> str:
    """How many points gave no time, and each that is wrong or failed."""
    counts = Counter(m.status for m in members if m.status not in ("ok", "unavailable"))
    if not counts:
        return ""
    faults = [m for m in members if m.status in ("wrong", "failed", "crashed")]
    said = "".join(f"<li>{escape(f'{m.candidate} at {m.shape_id}: {m.status}, {m.reason}')}" for m in faults)
    numbers = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"<p>Points without a time: {escape(numbers)}.</p>{f'<ul>{said}</ul>' if said else ''}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    filled = [number for number, word in enumerate(head) if word not in _SUSTAINED or any(row[number] for row in rows)]
    head, rows = [head[number] for number in filled], [[row[number] for number in filled] for row in rows]
    first = "".join(f"<th>{escape(word)}" for word in head)
    rest = "".join("<tr>" + "".join(f"<td>{escape(word)}" for word in row) for row in rows)
    return f"<div class=wide><table><tr>{first}{rest}</table></div>"


def _longer(share: Share) -> str:
    """Time of a call back to back over that of a single one: median, and the most."""
    return "" if share.sustained is None else f"× {share.sustained[0]:.2f} (up to {share.sustained[1]:.2f})"


def _share_row(share: Share) -> list[str]:
    beside = [str(share.fastest), str(share.not_apart), f"{share.of_fastest:.2f}", f"{share.lowest:.2f}"]
    compared = beside if share.compared else ["–"] * len(beside)  # nothing else was timed
    floor, error = f"{share.times_floor:,.1f}", _error(share.error)
    return [share.rank, share.candidate, str(share.shapes), *compared, floor, error, _longer(share)]


def _row(m: KernelMeasurement) -> list[str]:
    ratio = m.median_us / m.floor_us if m.median_us and m.floor_us else None
    figures = [f"{number:.1f}" if number is not None else "" for number in (m.median_us, m.mad_us)]
    said = m.status if m.reason is None else f"{m.status}: {m.reason}"
    words = [m.shape_id, m.candidate, *figures, "" if m.n is None else str(m.n), *_rates(m)]
    return [*words, "" if ratio is None else f"{ratio:,.1f}", _errors(m), said, *_sustained(m)]


def _sustained(m: KernelMeasurement) -> list[str]:
    figures = (m.sustained_us, ".1f"), (m.sustained_sm_mhz, ",.0f"), (m.sustained_power_w, ",.0f")
    return [*("" if number is None else format(number, form) for number, form in figures), m.sustained_slowed or ""]


def _rates(m: KernelMeasurement) -> list[str]:
    """TB/s and TFLOP/s of the least work, to be held against the ceilings above."""
    amounts = (m.bytes, ".2f"), (m.flops, ".1f")
    return [format(amount / m.median_us / 1e6, form) if amount and m.median_us else "" for amount, form in amounts]


def _errors(m: KernelMeasurement) -> str:
    """Of a candidate that rounds its inputs by design both, the second being what its verdict rests on."""
    held = "" if m.rounded_err is None else f" ({_error(m.rounded_err)} of rounded inputs)"
    return f"{_error(m.rel_err)}{held}"


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.2g}"


def _by_shape(members: Sequence[KernelMeasurement]) -> list[list[KernelMeasurement]]:
    """Those that are compared: of one environment, where there are several the one with most candidates, then the newest."""
    places: dict[str, dict[str, list[KernelMeasurement]]] = defaultdict(lambda: defaultdict(list))
    for member in members:
        if member.status == "ok" and member.median_us is not None:
            places[member.shape_id][member.environment.fingerprint].append(member)
    return [
        max(found.values(), key=lambda mine: (len(mine), max(m.started_at for m in mine))) for found in places.values()
    ]


def _cell(members: Sequence[KernelMeasurement]) -> HeatCell | None:
    """The fastest of a shape, and whether it is told apart from the next."""
    timed = sorted(((m, m.times) for m in members), key=lambda both: both[0].median_us or 0.0)
    (first, times), *others = timed
    if times is None or first.floor_us is None:
        return None
    ties = any(other is not None and not are_apart(times, other) for _, other in others)
    lead = others[0][1].median_us / times.median_us - 1 if others and others[0][1] else None
    return HeatCell(first.shape_id, first.candidate, times.median_us / first.floor_us, is_tie=ties, lead=lead)

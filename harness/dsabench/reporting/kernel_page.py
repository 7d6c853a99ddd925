"""Which candidate is fastest where: one SVG an operator and dtype, and a page that shows them with the numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from dsabench.errors import InputError, StoreError
from dsabench.microbench.measured import Measurement
from dsabench.microbench.summary import are_apart
from dsabench.reporting.kernel_map import Cell, draw_map

Group = tuple[str, str]
"""Operator and dtype."""

_WORDS = (
    "Median time of one call; the floor is the least work at the bandwidth and speed of the same run. "
    "Candidates whose intervals touch, or whose medians are within 1 %, are not told apart."
)
_STYLE = """body{font:14px sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse}
td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}td:first-child,td:nth-child(2){text-align:left}"""


def write_page(measurements: Sequence[Measurement], folder: Path) -> Path:
    """Write `index.html` and its pictures.

    Raises:
        InputError: nothing has a time.
        StoreError: the folder cannot be written.

    """
    groups: dict[Group, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.operator, measurement.dtype].append(measurement)
    if not any(m.status == "ok" and m.median_us for m in measurements):
        raise InputError("nothing to report: no point has a time; run `dsabench kernels bench` first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = [_section(group, members, folder) for group, members in sorted(groups.items())]
        page = folder / "index.html"
        page.write_text(_page(measurements, parts), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}: the report was not written") from error
    return page


def _page(measurements: Sequence[Measurement], parts: Sequence[str]) -> str:
    machines = sorted({_machine(m) for m in measurements})
    return "\n".join(
        [
            f"<!doctype html><meta charset='utf-8'><title>Kernels</title><style>{_STYLE}</style><h1>Kernels</h1>",
            f"<p>{_WORDS}</p>",
            *(f"<p>Measured on {escape(machine)}</p>" for machine in machines),
            *parts,
        ]
    )


def _machine(m: Measurement) -> str:
    hardware = m.environment.hardware
    place = hardware.gpus[0].name if hardware.gpus else f"{hardware.cpu}, {m.threads} thread(s)"
    return f"{place}, torch {m.environment.runtime.torch}, environment {m.environment.fingerprint}"


def _section(group: Group, members: Sequence[Measurement], folder: Path) -> str:
    operator, dtype = group
    picture = f"{operator}-{dtype}.svg"
    cells = [cell for shape in _by_shape(members) if (cell := _cell(shape))]
    if cells:
        draw_map(f"{operator}, {dtype}", cells, folder / picture)
    rows = [_row(m) for m in sorted(members, key=lambda m: (m.shape_id, m.median_us or float("inf")))]
    head = "<tr><th>shape<th>candidate<th>median µs<th>MAD<th>n<th>× floor<th>status"
    image = f"<img src='{escape(picture)}' alt='fastest candidate by shape'>" if cells else ""
    return f"<h2>{escape(operator)}, {escape(dtype)}</h2>{image}<table>{head}{''.join(rows)}</table>"


def _row(m: Measurement) -> str:
    ratio = m.median_us / m.floor_us if m.median_us and m.floor_us else None
    figures = [f"{number:.1f}" if number is not None else "" for number in (m.median_us, m.mad_us)]
    said = m.status if m.reason is None else f"{m.status}: {m.reason}"
    words = [m.shape_id, m.candidate, *figures, "" if m.n is None else str(m.n)]
    words += ["" if ratio is None else f"{ratio:.1f}", said]
    return "<tr>" + "".join(f"<td>{escape(word)}" for word in words)


def _by_shape(members: Sequence[Measurement]) -> list[list[Measurement]]:
    shapes: dict[str, list[Measurement]] = defaultdict(list)
    for member in members:
        if member.status == "ok" and member.median_us is not None:
            shapes[member.shape_id].append(member)
    return list(shapes.values())


def _cell(members: Sequence[Measurement]) -> Cell | None:
    """The fastest of a shape, and whether it is told apart from the next."""
    timed = sorted(((m, m.times) for m in members), key=lambda both: both[0].median_us or 0.0)
    (first, times), *others = timed
    if times is None or first.floor_us is None:
        return None
    ties = any(other is not None and not are_apart(times, other) for _, other in others)
    return Cell(first.shape_id, first.candidate, times.median_us / first.floor_us, is_tie=ties)

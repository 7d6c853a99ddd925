"""Numbers as people read them, on a terminal and on a page."""

from __future__ import annotations

from datetime import datetime


def show_figure(value: float | None) -> str:
    """Four digits, without an exponent where a person would not write one; absence as a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def show_percent(value: float | None, unit: str = "relative") -> str:
    """`+5.8 %`, or `+5.8 pt` of an eval; beyond tenfold the digits mean nothing."""
    if value is None:
        return "–"
    if value > 10:
        return ">1,000 %"
    return f"{100 * value:+,.{1 if abs(value) < 1 else 0}f} {'%' if unit == 'relative' else 'pt'}"


def show_share(value: float | None) -> str:
    """`19.7 %` without a sign, of a share that cannot be negative."""
    return "–" if value is None else f"{100 * value:.{1 if value >= 0.01 else 2}f} %"


def show_date(moment: datetime) -> str:
    """`2026-11-22 00:15 UTC`."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def show_count(count: int, one: str, many: str | None = None) -> str:
    """`1 boot`, `14 boots`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def show_dollars(price: float | None) -> str:
    """`$1,053`."""
    return "–" if price is None else f"${price:,.0f}"


def show_duration(seconds: float | None) -> str:
    """`8.1 s`, `24 s`, `2 min 05 s`, `3 h 20 min`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

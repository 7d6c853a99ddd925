"""What `dsabench search` does: read a landscape, replay strategies on it, and show what they pay."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dsabench.cli.tables import titled
from dsabench.config.load import load_study
from dsabench.config.mistakes import unknown_word
from dsabench.errors import InputError, StoreError
from dsabench.model.space import count
from dsabench.model.value import value_text
from dsabench.reporting.numbers import show_duration, show_figure, show_share
from dsabench.reporting.replay_plot import draw_replays
from dsabench.results.journal import FILE_NAME, Journal
from dsabench.study.context import context_of_records
from dsabench.study.landscape import Landscape, landscape_of, read_landscape, write_landscape
from dsabench.study.proposers import PROPOSERS
from dsabench.study.replay import REGRET_AT, ReplaySummary, memory_of, summarise
from dsabench.study.synthetic import KINDS
from dsabench.study.synthetic import generate as generate_landscape


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The arguments of `search replay`."""

    landscape: str
    proposers: tuple[str, ...]
    """The judged one first."""
    seeds: int
    within: float
    settings: int
    config: str | None
    memory: str | None
    plot: Path | None


def run_replay(options: ReplayOptions, *, as_json: bool) -> None:
    """Replay every strategy and print what each pays.

    Raises:
        InputError: there is no such strategy, or the landscape has a mistake.

    """
    _require(PROPOSERS, "proposer", *options.proposers)
    landscape = _landscape(options.landscape, options.config)
    most = min(options.settings, len(landscape.settings))
    memory = None if options.memory is None else memory_of(_landscape(options.memory, options.config), landscape)
    found = []
    for name in options.proposers:
        print(f"{name}: {options.seeds} searches of at most {most} settings", file=sys.stderr)
        found.append(summarise(landscape, name, seeds=options.seeds, within=options.within, most=most, memory=memory))
    if options.plot is not None:
        written = draw_replays(landscape.header.name, [one.curve() for one in found], options.plot)
        print(f"wrote {written}", file=sys.stderr)
    if as_json:
        print(json.dumps(_as_object(landscape, found)))
        return
    _show(landscape, found)


def run_generate(kind: str, output: Path, *, seed: int, noise: float, failing: float) -> None:
    """Write an invented landscape.

    Raises:
        InputError: there is no such kind.
        StoreError: the file cannot be written.

    """
    _require(KINDS, "kind", kind)
    _write(generate_landscape(kind, seed, noise=noise, failing=failing), output)


def run_export(results: Path, output: Path, config: str | None) -> None:
    """Write what a study measured as a landscape.

    Raises:
        InputError: there is no record, or no setting is feasible.
        StoreError: the file cannot be written.

    """
    landscape = _measured(results, config)
    _write(landscape, output)
    legal = count(landscape.header.space, landscape.header.base)
    if len(landscape.settings) < legal:
        print(f"warning: {legal - len(landscape.settings):,} of {legal:,} settings are not measured", file=sys.stderr)


def _write(landscape: Landscape, output: Path) -> None:
    try:
        write_landscape(landscape, output)
    except OSError as error:
        raise StoreError(f"{output}: {error.strerror}") from error
    failed = sum(one.value is None for one in landscape.settings)
    told = f"{len(landscape.settings):,} settings, {failed:,} of them fail, {show_duration(landscape.seconds)} in all"
    print(f"wrote {output}: {told}")


def _require(known: Mapping[str, object], what: str, *names: str) -> None:
    for name in names:
        if name not in known:
            raise InputError(unknown_word(what, name, known))


def _landscape(place: str, config: str | None) -> Landscape:
    path = Path(place)
    folder = path.parent if path.name == FILE_NAME else path
    return _measured(folder, config) if (folder / FILE_NAME).is_file() else read_landscape(path)


def _measured(folder: Path, config: str | None) -> Landscape:
    records = Journal(folder).read().records
    if not records:
        raise InputError(f"{folder / FILE_NAME}: no record")
    study = load_study(config or records[0].study)
    return landscape_of(context_of_records(study, folder).records())


def _as_object(landscape: Landscape, found: Sequence[ReplaySummary]) -> dict[str, Any]:
    judged, by_name = found[0], {one.proposer: one for one in found}
    told = {
        f"{name}_median_cost_fraction": by_name[name].cost_fraction(0.5) if name in by_name else None
        for name in ("random", "tpe")
    }
    return {
        **_figures(judged),
        **told,
        "landscape": landscape.header.name,
        "settings": len(landscape.settings),
        "grid_hours": landscape.seconds / 3600,
        "seeds": len(judged.replays),
        "within": judged.within,
        "against": [_figures(one) for one in found[1:]],
    }


def _figures(one: ReplaySummary) -> dict[str, Any]:
    return {
        "proposer": one.proposer,
        "median_cost_fraction": one.cost_fraction(0.5),
        "p25": one.cost_fraction(0.25),
        "p75": one.cost_fraction(0.75),
        "reached": one.reached,
        "median_boots": one.boots(0.5),
        "regret_24": one.regret,
        "regret_24_interval": one.regret_interval,
        "failed_boots": one.failed,
    }


def _show(landscape: Landscape, found: Sequence[ReplaySummary]) -> None:
    within = f"{100 * found[0].within:.3g} %"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    heads = ("strategy", "boots", "time", "of grid", f"regret after {REGRET_AT}", "failed", "reached")
    for head in heads:
        table.add_column(head, justify="left" if head == "strategy" else "right")
    for one in found:
        boots, cost = one.boots(0.5), one.cost_fraction(0.5)
        table.add_row(
            one.proposer,
            "never" if boots is None else f"{boots:.0f}",
            "" if cost is None else show_duration(cost * one.grid_seconds),
            "" if cost is None else show_share(cost),
            _regret(one),
            f"{one.failed:.1f}",
            f"{one.reached}/{len(one.replays)}",
        )
    title = (
        f"{landscape.header.name}: {len(landscape.settings):,} settings, {show_duration(landscape.seconds)} to measure all; "
        f"medians of {len(found[0].replays)} searches until {within} from the best"
    )
    console = Console(highlight=False)
    console.print(titled(title, table))
    console.print(f"Best: {_words(landscape)}. The regret has a 95 % interval of its median, from six searches on.")


def _regret(one: ReplaySummary) -> str:
    if one.regret_interval is None:
        return show_share(one.regret)
    low, high = one.regret_interval
    return f"{show_share(one.regret)} ({100 * low:.1f} to {100 * high:.1f})"


def _words(landscape: Landscape) -> str:
    best = landscape.best
    setting = " ".join(f"{name}={value_text(value)}" for name, value in best.setting.items())
    return f"{landscape.header.metric} {show_figure(best.value)} with {setting}"

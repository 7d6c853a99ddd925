"""Latency and throughput over the load, where a setting was measured under several loads of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsabench.model.value import canonical_json
from dsabench.model.workload import Workload
from dsabench.reporting.numbers import show_figure
from dsabench.reporting.site.canvas import QUIET, SERIES, draw, linked
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Setting, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOADS_MIN = 3
_OF_LOAD = ("name", "max_concurrency", "request_rate", "num_prompts", "seed", "warmup_requests", "slo")
"""Fields in which points of one curve may differ."""
_LATENCIES = ("ttft_ms.p90", "tpot_ms.p90")


@dataclass(frozen=True, slots=True)
class Load:
    """One load of a curve: requests per second, or requests in flight."""

    at: float
    workload: Workload


@dataclass(frozen=True, slots=True)
class Curve:
    """What is drawn: the sides by name over loads of one kind."""

    name: str
    unit: str
    loads: tuple[Load, ...]
    sides: tuple[tuple[str, Setting], ...]


def curves_of(workloads: Sequence[Workload]) -> list[tuple[str, list[Load]]]:
    """(what the load counts, loads in order) of every kind with enough of them."""
    kinds: dict[tuple[str, str], list[Load]] = {}
    for workload in workloads:
        unit, at = (
            ("requests/s", workload.request_rate)
            if workload.request_rate is not None
            else ("requests in flight", workload.max_concurrency)
        )
        if at is not None:
            same = canonical_json(workload.model_copy(update=dict.fromkeys(_OF_LOAD)))
            kinds.setdefault((unit, same), []).append(Load(float(at), workload))
    found = [(unit, sorted(loads, key=lambda load: load.at)) for (unit, _), loads in kinds.items()]
    return [(unit, loads) for unit, loads in found if len({load.at for load in loads}) >= _LOADS_MIN]


def knee(throughputs: Sequence[float], latencies: Sequence[float]) -> int:
    """The load of the most power, throughput over latency (Kleinrock 1979, "Power and deterministic rules of thumb")."""
    powers = [throughput / latency for throughput, latency in zip(throughputs, latencies, strict=True)]
    return powers.index(max(powers))


def draw_curves(study: Study) -> list[str]:
    """Pictures of best and default over every kind of load."""
    pictures = []
    for number, (unit, loads) in enumerate(curves_of(list(study.workloads.values()))):
        sides = [("default", study.default_setting)] + ([("best", study.best)] if study.best else [])
        curve = Curve(f"{study.slug}-load{number}", unit, tuple(loads), tuple(sides))
        drawn = [*(_latency(study, curve, metric) for metric in _LATENCIES), _throughput(study, curve)]
        pictures += [picture for picture in drawn if picture is not None]
    return pictures


def _latency(study: Study, curve: Curve, metric: str) -> str | None:
    unit, loads, sides, name = curve.unit, curve.loads, curve.sides, curve.name
    family = metric.partition(".")[0]
    for shown in (metric, f"{family}.p50"):
        lines = [(word, *_line(setting, loads, shown)) for word, setting in sides]
        lines = [line for line in lines if len(line[1]) >= _LOADS_MIN]
        if lines:
            break
    else:
        return None
    limits = {
        limit for load in loads if load.workload.slo for n, limit in load.workload.slo.limits_ms.items() if n == family
    }
    if study.objective is not None:
        limits |= {
            bound.max for bound in study.objective.constraints if bound.metric == shown and bound.max is not None
        }

    def plot(axes: Axes) -> None:
        for (word, xs, ys, entries), colour in zip(lines, SERIES, strict=False):
            axes.plot(xs, ys, color=colour, label=word)
            axes.scatter(xs, ys, s=30, color=colour, zorder=3).set_urls([f"../{entry.page}" for entry in entries])
            throughputs = [entry.value("output_throughput_tok_s") or 0.0 for entry in entries]
            at = knee(throughputs, ys)
            axes.scatter([xs[at]], [ys[at]], s=130, facecolors="none", edgecolors=colour, lw=1.4, zorder=4)
            axes.annotate(
                "knee", (xs[at], ys[at]), xytext=(8, -12), textcoords="offset points", color=colour, fontsize=8
            )
        for limit in limits:
            axes.axhline(limit, color=QUIET, lw=1, ls="--")
            axes.annotate(f"SLO {limit:g} ms", (0, limit), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points", color=QUIET, fontsize=8)  # fmt: skip
        axes.set_xlabel(unit)
        axes.set_ylabel(f"{shown.replace('_ms', '')}, ms")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")

    svg = draw(f"{name}-{shown}", f"{shown} over the load in {unit}", plot)
    return linked(svg, {f"../{e.page}": f"{word}, {show_figure(x)} {unit}: {show_figure(y)} ms"
                        for word, xs, ys, es in lines for x, y, e in zip(xs, ys, es, strict=True)})  # fmt: skip


def _throughput(study: Study, curve: Curve) -> str | None:
    unit, loads, sides, name = curve.unit, curve.loads, curve.sides, curve.name
    lines = [(word, *_line(setting, loads, study.metric)) for word, setting in sides]
    lines = [line for line in lines if len(line[1]) >= _LOADS_MIN]
    if not lines:
        return None

    def plot(axes: Axes) -> None:
        for (word, xs, ys, entries), colour in zip(lines, SERIES, strict=False):
            axes.plot(xs, ys, color=colour, label=word)
            axes.scatter(xs, ys, s=30, color=colour, zorder=3).set_urls([f"../{entry.page}" for entry in entries])
        axes.set_xlabel(unit)
        axes.set_ylabel(study.metric)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")

    return linked(draw(f"{name}-{study.metric}", f"{study.metric} over the load in {unit}", plot), {})


def _line(setting: Setting, loads: Sequence[Load], metric: str) -> tuple[list[float], list[float], list[Entry]]:
    points = [(load.at, found) for load in loads if (found := setting.figure(load.workload.name, metric)) is not None]
    return [at for at, _ in points], [found.value for _, found in points], [found.entries[-1] for _, found in points]

"""What `--dry-run` prints: the boots ahead, what the rules refuse, how long it will take."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from dsabench.cli.figures import show_count, show_duration
from dsabench.cli.titled_table import titled
from dsabench.study.plan import DryRun, GpuHours
from dsabench.study.space_check import Overruled, SpaceCheck


def print_plan(console: Console, dry_run: DryRun) -> None:
    """What a sweep would measure, and how long that would take."""
    plan, rest = dry_run.plan, dry_run.left
    config, cost, done = plan.config, plan.cost, plan.boots_done
    console.print(_plan_table(dry_run) if rest.boots else f"{config.name}: nothing is left to measure")
    of_default = (f"the default: {note.line}" for note in dry_run.notes)
    for line in (*of_default, *_refused_lines(plan.space), *_overruled_lines(dry_run.overruled)):
        console.print(line, highlight=False, markup=False, style="yellow")
    basis = (
        "from this study's records"
        if cost.measured
        else "assumed: nothing is measured yet, and a load of many or long prompts takes longer"
    )
    per = f"{cost.boot_s:.1f} s a boot, {cost.trial_s:.1f} s a trial, {basis}"
    if rest.boots:
        words = f"{show_count(rest.boots, 'boot')}, {show_count(rest.trials, 'trial')}{' left' if done else ''}"
        console.print(f"{words}, about {show_duration(rest.seconds)} ({per})", highlight=False)
    if (gate := config.gate) is not None:
        text = f"gate: {gate.eval}, repeat {gate.repeat}, in the last boot of each side; finalists: {gate.finalists} at most; its answers take time beyond the estimate"
        console.print(text, highlight=False, markup=False)
    if dry_run.gpu_hours is not None and rest.boots:
        console.print(_gpu_hours(dry_run.gpu_hours), highlight=False)
    if done:
        again = "" if rest.boots else ", 0 left; --again measures them once more"
        console.print(
            f"{show_count(done, 'boot')} {'is' if done == 1 else 'are'} recorded already{again}", highlight=False
        )
    if config.runtime.hardware is None and plan.space.asked:
        console.print("runtime.hardware is not named: rules about hardware were not asked", highlight=False)


def _gpu_hours(spent: GpuHours) -> str:
    """`about 21.3 GPU-hours`, and how open boots are counted."""
    open_boots = f"{show_count(spent.open_boots, 'boot')} of settings still open"
    counted = f" ({open_boots} count {spent.gpus_each} each, as the largest)" if spent.open_boots else ""
    return f"about {spent.hours:.1f} GPU-hours{counted}"


def plan_facts(dry_run: DryRun) -> dict[str, object]:
    """The same for machines."""
    plan, left, space, overruled = dry_run.plan, dry_run.left, dry_run.plan.space, dry_run.overruled
    return {
        "study": plan.config.name,
        "boots": plan.boots_total,
        "trials": plan.trials_total,
        "left": {"boots": left.boots, "trials": left.trials},
        "estimated_s": round(left.seconds, 1),
        "gpu_hours": None if dry_run.gpu_hours is None else round(dry_run.gpu_hours.hours, 2),
        "estimate_from": "records" if plan.cost.measured else "assumptions",
        "gate": None if plan.config.gate is None else plan.config.gate.model_dump(),
        "workloads": [workload.name for workload in plan.config.workloads],
        "refused": {
            "points": space.refused,
            "asked": space.asked,
            "all_asked": space.is_whole,
            "by_rule": dict(space.by_rule),
            "lines": dict(space.lines),
        },
        "overruled": {
            "points": overruled.points,
            "asked": overruled.asked,
            "by_rule": dict(overruled.by_rule),
            "lines": dict(overruled.lines),
        },
        "notes": [note.line for note in dry_run.notes],
        "settings": [
            {
                "label": one.label,
                "knobs": dict(one.spec.knobs),
                "refused": None if one.refusal is None else one.refusal.line,
                "missing": one.missing,
            }
            for one in dry_run.upcoming
        ],
    }


def _plan_table(dry_run: DryRun) -> Group:
    """What is left, boot by boot."""
    config, rest = dry_run.plan.config, dry_run.left
    ahead = dry_run.upcoming if rest.search_boots else ()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("boot", "phase", "setting"):
        table.add_column(column, justify="right" if column == "boot" else "left", overflow="fold")
    boots = 0
    for one in ahead:
        if one.missing == 0:
            continue
        if one.refusal is None:
            boots += 1
            table.add_row(str(boots), "search", escape(one.label))
        else:
            table.add_row("–", "refused", escape(f"{one.label} ({one.refusal.rule})"))
    unseen = rest.search_boots - boots
    if unseen > 0:
        table.add_row(f"+{unseen}", "search", f"chosen by {config.proposer.kind} from the results so far")
    if rest.confirm_boots:
        sides = "default, what comes first and best" if config.budget.confirm_first else "default and best"
        table.add_row(f"+{rest.confirm_boots}", "confirm", f"{sides} in turns")
    size = f"{show_count(dry_run.plan.space.settings, 'setting')} × {show_count(len(config.workloads), 'workload')}"
    return titled(f"{config.name}: {size}", table)


def _refused_lines(space: SpaceCheck) -> list[str]:
    """How many points the rules refuse, and which rules they are."""
    if not space.refused:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in space.by_rule.items())
    of = f"{space.asked} points" if space.is_whole else f"{space.asked} points drawn from a larger space"
    head = f"{space.refused} of {of} are refused by the rules, without a boot: {rules} (docs/sglang-rules.md)"
    return [head, *(f"  {space.lines[rule]}" for rule in space.by_rule)]


def _overruled_lines(found: Overruled) -> list[str]:
    """How many of the others would boot and run something else than they ask for, and why."""
    if not found.points:
        return []
    rules = ", ".join(f"{rule} {count}" for rule, count in found.by_rule.items())
    head = f"{found.points} of the {found.asked} others would run otherwise than asked, at the price of a boot: {rules}"
    return [head, *(f"  {found.lines[rule]}" for rule in found.by_rule)]

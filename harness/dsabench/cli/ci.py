"""`dsabench ci CONFIG`: check whether it has become slower than the baseline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsabench.errors import InputError

if TYPE_CHECKING:
    from dsabench.config.specs import StudyConfig
    from dsabench.reporting.comparison import ComparedSide
    from dsabench.reporting.regression import Judgement
    from dsabench.study.regression_check import CheckResult

_BASELINE = "main:results/ci"


@dataclass(frozen=True, slots=True)
class CiOptions:
    """The options of `ci`."""

    config: Annotated[
        str, typer.Argument(help="A config. Its default setting is booted and its workloads are measured.")
    ]
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Boots of the baseline: a folder, a journal or a commit (REF, REF:PATH); default: main:results/ci."
        ),
    ] = None
    in_turns: Annotated[
        bool,
        typer.Option("--in-turns", help="Boot the setting that --baseline recorded, in turns with CONFIG's."),
    ] = False
    base_ref: Annotated[
        str | None,
        typer.Option(help="Boot CONFIG as it is in this commit, in turns with CONFIG, instead of --baseline."),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(help="Config of a baseline that boots now, in turns with CONFIG, instead of --baseline."),
    ] = None
    results: Annotated[
        Path | None, typer.Option(help="Where the boots are recorded; default: results/local-ci/NAME.")
    ] = None
    boots: Annotated[int, typer.Option(min=3, help="Boots per side in the first look.")] = 5
    max_boots: Annotated[
        int | None,
        typer.Option(min=3, help="Boots per side at most, if the first look is undecided; default: --boots."),
    ] = None
    effect: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="The slowdown that must not be missed: 0.05 is 5 %.")
    ] = 0.05
    false_alarms: Annotated[
        float,
        typer.Option(
            min=0.00001, max=0.2, help="Chance of a failed check although nothing changed: 0.001 is 1 check in 1,000."
        ),
    ] = 0.001
    metric: Annotated[
        list[str] | None, typer.Option(help="Judge this metric; may be repeated. Default: the config's.")
    ] = None
    across: Annotated[
        bool, typer.Option("--across-environments", help="Compare although machine or runtime differ.")
    ] = False
    init: Annotated[
        bool, typer.Option("--init", help="Measure the first baseline, and print what to commit; judge nothing.")
    ] = False
    no_run: Annotated[bool, typer.Option("--no-run", help="Boot nothing; judge the boots in --results.")] = False
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None
    summary: Annotated[Path | None, typer.Option(help="Write the Markdown summary here too.")] = None
    json: Annotated[bool, typer.Option("--json", help="The judgement as one JSON object.")] = False


def ci(options: CiOptions) -> int:
    """Has it become slower than the baseline? Exit 1 for a proven regression, else 0.

    Recorded boots of a baseline lie apart from those of now, so the machine's drift counts too. It shows in a baseline that was
    recorded on several occasions. Without them the check is refused: boot both sides in turns (--in-turns, --base-ref or
    --against).

    If --max-boots is above --boots, an undecided check boots once more, as often as the spread requires. Each of
    the two looks then has half the chance of a false alarm. On GitHub the verdicts go to the step summary and
    become annotations.
    """
    from dsabench.config.load import load_study
    from dsabench.model.metrics import require_metrics
    from dsabench.signals import run_loop

    bases: dict[str, str | bool | None] = {"--base-ref": options.base_ref, "--against": options.against}
    # --in-turns boots what --baseline recorded, so these two go together
    bases |= {"--in-turns": True} if options.in_turns else {"--baseline": options.baseline}
    if len(named := [flag for flag, value in bases.items() if value is not None]) > 1:
        raise InputError(f"{' and '.join(named)} exclude each other: name one base")
    require_metrics(options.metric or ())
    if options.init:
        return _init(options)
    began, config = time.monotonic(), load_study(options.config)
    found = run_loop(_check(options, config))
    _report(options, config.name, found.judgement, found.faults, time.monotonic() - began)
    return 1 if found.judgement.standing == "regression" else 0


def _init(options: CiOptions) -> int:
    """Measure the first baseline."""
    from rich.console import Console

    from dsabench.cli.progress import LineProgress
    from dsabench.config.load import load_study
    from dsabench.signals import run_loop
    from dsabench.study.regression_check import CheckedSide, look_at, measure_baseline

    if options.baseline or options.against or options.base_ref or options.in_turns or options.no_run:
        raise InputError("--init measures a baseline: it goes without another base and without --no-run")
    config, folder = load_study(options.config), options.results or Path("results") / "ci"
    side = CheckedSide(config, run_loop(look_at(config)), folder)
    progress = LineProgress(Console(stderr=True), config.objective.metric)
    run_loop(measure_baseline(side, options.boots, progress))
    journal, boots = folder / "journal.jsonl", side.boots + side.disturbed
    print(
        f"{journal}: {boots} boots of {config.name} on this machine ({side.disturbed} disturbed by other processes)\n"
        f"Commit it. Checks then boot its setting in turns with yours:\n"
        f"  git add {journal} && git commit -m 'Baseline of {config.name}'\n"
        f"  dsabench ci {options.config} --in-turns" + (f" --baseline main:{folder}" if options.results else "")
    )
    return 0


def _baseline(options: CiOptions) -> ComparedSide:
    """The recorded baseline.

    Raises:
        InputError: there is none.

    """
    from dsabench.cli.run_compare import side_of

    try:
        return side_of(options.baseline or _BASELINE)
    except InputError as error:
        if options.baseline is not None:
            raise
        raise InputError(f"{error}. Measure the first baseline with: dsabench ci {options.config} --init") from error


def _booted_base(options: CiOptions, config: StudyConfig) -> StudyConfig | None:
    """What boots in turns with the config; None where recorded boots are the base."""
    from dsabench.config.load import load_study, load_study_text
    from dsabench.results.places import read_at_ref
    from dsabench.rooms import find
    from dsabench.study.regression_check import as_recorded

    if options.against is not None:
        return load_study(options.against)
    if options.base_ref is not None:
        path = find("configs", options.config)
        text = read_at_ref(options.base_ref, path).decode("utf-8", "replace")
        return load_study_text(text, Path(f"{options.base_ref}:{path}"))
    return as_recorded(config, _baseline(options)) if options.in_turns else None


def _drift_unknown(options: CiOptions, baseline: ComparedSide) -> InputError:
    return InputError(
        f"{baseline.name}: these boots do not take turns with yours, and no two of its occasions are as far apart, "
        "so the machine's drift may be the whole difference. "
        f"Boot both now: dsabench ci {options.config} --in-turns (or --base-ref REF, --against CONFIG)"
    )


async def _check(options: CiOptions, config: StudyConfig) -> CheckResult:
    from rich.console import Console

    from dsabench.cli.progress import LineProgress
    from dsabench.reporting.comparison import ComparedSide, has_drift_history
    from dsabench.reporting.regression import Rules
    from dsabench.study.regression_check import CheckedSide, CheckSpec, check_regression, look_at, refuse_copies

    folder = options.results or Path("results") / "local-ci" / config.name
    other = _booted_base(options, config)
    ours = CheckedSide(config, await look_at(config), folder if other is None else folder / "candidate")
    theirs = None if other is None else CheckedSide(other, await look_at(other), folder / "base")
    max_boots = max(options.boots, options.max_boots or 0)
    rules = Rules(
        metrics=tuple(
            dict.fromkeys(
                options.metric or (config.objective.metric, *(limit.metric for limit in config.objective.constraints))
            )
        ),
        effect=options.effect,
        looks=2
        if max_boots > options.boots and theirs is not None and not options.no_run
        else 1,  # beside recorded boots more decide nothing
        false_alarms=options.false_alarms,
        across=options.across or theirs is not None,
    )
    spec = CheckSpec(rules, 0 if options.no_run else options.boots, max_boots)
    against: CheckedSide | ComparedSide = theirs or _baseline(options)
    if isinstance(against, ComparedSide):
        refuse_copies(ours, against)
        if not options.no_run and not has_drift_history(against, rules.metrics[0], time.time()):
            raise _drift_unknown(options, against)
    found = await check_regression(spec, ours, against, LineProgress(Console(stderr=True), config.objective.metric))
    unknown = not found.judgement.interleaved and all(one.ci_low is None for one in found.judgement.verdicts)
    if unknown and isinstance(against, ComparedSide):
        raise _drift_unknown(options, against)
    return found


def _report(options: CiOptions, name: str, judgement: Judgement, faults: Sequence[str], duration_s: float) -> None:
    from rich.console import Console

    from dsabench.cli.tables import VerdictTable
    from dsabench.reporting.ci_files import append_summary, github_commands, summary_markdown, write_junit

    base = options.against or (f"{options.base_ref}:{options.config}" if options.base_ref else None)
    base = base or options.baseline or _BASELINE
    turns = "in turns with" if judgement.interleaved else "against"
    title = f"{name}: {judgement.boots_had} boots {turns} {base}"
    if options.junit is not None:
        write_junit(options.junit, name, judgement, faults, duration_s)
    markdown = summary_markdown(title, judgement, faults)
    for place in (options.summary, os.environ.get("GITHUB_STEP_SUMMARY")):
        if place:
            append_summary(Path(place), markdown)
    if os.environ.get("GITHUB_ACTIONS") == "true" and not options.json:
        print("\n".join(github_commands(f"dsabench {name}", judgement)))
    if options.json:
        found = {
            "standing": judgement.standing,
            "sentence": judgement.sentence,
            "interleaved": judgement.interleaved,
            "boots": judgement.boots_had,
            "boots_wanted": judgement.boots_wanted,
            "disturbed": dict(zip(("baseline", "candidate"), map(asdict, judgement.neighbours), strict=True)),
            "verdicts": [verdict.model_dump() for verdict in judgement.verdicts],
            "failed": list(faults),
        }
        print(json.dumps(found))
        return
    console = Console()
    console.print(VerdictTable(judgement.verdicts, title))
    console.print(judgement.sentence, markup=False, highlight=False)

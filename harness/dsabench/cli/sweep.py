"""`dsabench sweep CONFIG`: measure a study and print its verdict."""

from __future__ import annotations

from dsabench.cli.options import StudyOptions, run_study


def sweep(options: StudyOptions) -> int:
    """Search settings, confirm the best against the default, print the verdict.

    Measured trials are in RESULTS/journal.jsonl the moment they are done. A second run goes on where the first
    stopped, and does nothing when everything is measured.
    """
    from dsabench.cli.show_result import exit_code, print_plan_of, print_result_of

    study = options.study()
    if options.dry_run:
        print_plan_of(options, study)
        return 0
    result = run_study(options, study)
    print_result_of(options, study, result)
    return exit_code(result)

"""Puts random settings before the rules and before a release's own argument code, and counts where the two differ.

    PYTHONPATH=harness:kernels:tests python tests/wheels/compare_rules.py VERSION … [--settings 2000] [--seed 0]

Each release has to be added (`dsabench runtime add sglang==VERSION`). Prints, per version, how many settings both refuse,
one alone refuses, or neither; and per kind of difference how often, with one setting that shows it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from itertools import islice
from random import Random

from draws import Draw, draws, mended

from dsabench.runtimes.plan import settle
from dsabench.sglang.accepts import Accepted, flags_of_release
from dsabench.sglang.hardware import Accelerator
from dsabench.sglang.resolve.client import ArgumentAnswer, source_of
from dsabench.sglang.resolve.releases import added_release
from dsabench.sglang.resolve.settings import ArgumentCheck
from dsabench.sglang.rules import check
from sglang_rule_cases import DEVICES

SHARES = {"h200": 8, "b200": 8, "mi300x": 4, "rtx6000": 2, "a100": 1, "h20": 1, "h800": 1, "mi355x": 1}
"""Of the settings, per device."""
SPOKEN = ("ValueError", "AssertionError", "RuntimeError", "NotImplementedError", "TypeError", "argparse")


def difference(setting: Draw, answer: ArgumentAnswer, accepted: Accepted, device: Accelerator) -> tuple[str, str]:
    """Who refuses it, and for what."""
    found = check(setting.spec, accepted.version, device)
    errors = [one for one in found if one.severity == "error" and one.role == setting.role]
    said = re.sub(r"\b\d+\b", "N", " ".join(f"{answer.kind}: {answer.text}".split()))[:160]
    if answer.verdict == "cannot_say":
        return "cannot say", said
    if answer.verdict == "refused":
        return ("both refuse", "") if errors else ("sglang alone refuses", f"{said} ({answer.at})")
    if errors:
        return "the rules alone refuse", errors[0].rule
    return "neither refuses", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--settings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for version in given.versions:
        counts: Counter[tuple[str, str]] = Counter()
        shown: dict[tuple[str, str], str] = {}
        release, accepted = added_release(version), flags_of_release(version)
        assert release is not None, f"{version} was not added"
        asked = ArgumentCheck(source_of(release), accepted)
        for name, share in SHARES.items():
            device, random = DEVICES[name], Random(f"{given.seed} {version} {name}")
            walk = (
                own
                for drawn in draws(random, accepted)
                for own in [drawn, *mended(drawn, accepted, device, random)][-2:]
            )
            settings = list(islice(walk, given.settings * share // sum(SHARES.values())))
            answers = asked.ask_on(device, [asked.case(settle(one.spec), one.role) for one in settings])
            for setting, answer in zip(settings, answers, strict=True):
                found = difference(setting, answer, accepted, device)
                counts[found] += 1
                shown.setdefault(found, f"{name} {setting}")
        asked.close()
        totals: Counter[str] = Counter()
        for (who, _), times in counts.items():
            totals[who] += times
        print(f"{version}: {sum(totals.values())} settings: {dict(totals)}")
        for (who, what), times in counts.most_common():
            if what:
                print(f"{version} {who}, {times} times: {what} <- {shown[who, what]}", flush=True)


if __name__ == "__main__":
    main()

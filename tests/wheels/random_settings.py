"""Puts random settings before the rules and before the runtime's own checks, and lists where the two disagree.

    PYTHONPATH=harness:kernels:tests python tests/wheels/random_settings.py FOLDER_WITH_WHEELS PYTHON [VERSION …]
        [--old-python PATH] [--seed N] [--seconds S]

PYTHON and `--old-python` are those of `run_rules.py`. Each wheel is asked for S seconds, split over the devices; the
settings follow from the seed, their number from the time. A setting that the rules refuse is mended as they advise until
they take it, and the runtime is asked about the last one refused and the one taken.

Prints a line per kind of disagreement and version, with the smallest setting that shows it, and exits 1 where there are
any. What a rule says happens in silence, or in code that takes a GPU or the other half of disaggregation, is not judged.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from draws import Draw, draws, mended, smaller
from questions import Question, question_of
from run_rules import differences
from runtime_process import Answer, Runtime, started

from dsabench.sglang.accepts import Accepted, from_table
from dsabench.sglang.hardware import Accelerator
from dsabench.sglang.rules import Finding, check
from dsabench.sglang.versions import parse_version
from sglang_rule_cases import DEVICES
from sglang_rule_golden import UNSEEN, same_text
from wheels import wheels_in

SHARES = {"h200": 8, "b200": 8, "mi300x": 4, "rtx6000": 2, "a100": 1, "h20": 1, "h800": 1, "mi355x": 1}
"""Of the time, per device."""
RAISED = (
    *("ValueError", "AssertionError", "RuntimeError", "NotImplementedError", "TypeError", "FileNotFoundError"),
    "argparse",
)
NOT_RUN_HERE = UNSEEN | {"MM01", "PD06", "HS18", "SL09"}
"""Rules whose check is not reached without weights, the other half of disaggregation or the kernel package."""
HANG_ON_PAGES = frozenset({"SP02", "SP06", "SP08"})
"""Rules about the page size, which on AMD hangs on what is installed."""
NOT_OURS = ("ImportError", "ModuleNotFoundError", "OSError", "FileNotFoundError", "died")
"""Errors that come from what is not installed where the checks are run."""


@dataclass(frozen=True)
class Disagreement:
    """What the rules and the runtime say differently of a setting; equal ones are of one kind."""

    direction: str
    what: str


@dataclass
class Tally:
    """What came out for one version."""

    asked: int = 0
    refused: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    seen: Counter[Disagreement] = field(default_factory=Counter)
    shown: dict[Disagreement, str] = field(default_factory=dict)

    @property
    def kinds(self) -> list[Disagreement]:
        """The most frequent first. What is let through is told once, though another rule may refuse it later."""
        through = {found.what for found in self.seen if found.direction == "let through"}
        twice = {found for found in self.seen if found.direction == "refused in other words" and found.what in through}
        return [found for found, _ in self.seen.most_common() if found not in twice]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("python")
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--old-python")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    wrong = 0
    for wheel in wheels_in(given.wheels):
        if given.versions and wheel.version not in given.versions:
            continue
        accepted = from_table(parse_version(wheel.version))
        old = given.old_python if accepted.version < (0, 5, 10) else None
        tally = Tally()
        with wheel.unpacked(whole=True) as root:
            for name, share in SHARES.items():
                seconds = given.seconds * share / sum(SHARES.values())
                with started(root, old or given.python, DEVICES[name]) as runtime:
                    Trial(runtime, accepted, DEVICES[name], tally).run(f"{given.seed} {wheel.version} {name}", seconds)
        report(wheel.version, tally)
        wrong += len(tally.kinds)
    return 1 if wrong else 0


@dataclass(frozen=True)
class Trial:
    """The settings of one version on one device."""

    runtime: Runtime
    accepted: Accepted
    device: Accelerator
    tally: Tally

    def run(self, seed: str, seconds: float) -> None:
        """Ask until the time is over; each new kind of disagreement is made small at once."""
        self.ask(Draw("v3.2", "server", 1, {"tp_size": 8}), counted=False)  # imports all that the others need
        random, end = Random(seed), monotonic() + seconds
        for setting in self._walk(random):
            found = self.ask(setting)
            if found is not None:
                self.tally.seen[found] += 1
                if found not in self.tally.shown:
                    self.tally.shown[found] = f"{self.device.name} {self.smallest(setting, found)}"
            if monotonic() > end:
                return

    def _walk(self, random: Random) -> Iterator[Draw]:
        for drawn in draws(random, self.accepted):
            yield from [drawn, *mended(drawn, self.accepted, self.device, random)][-2:]

    def ask(self, setting: Draw, *, counted: bool = True) -> Disagreement | None:
        """What the two say differently of it."""
        question = question_of(("random", "random"), "random", self.accepted.version, self.device, setting.spec)
        answer = self.runtime.ask(question)
        found = judge(question, answer)
        if counted:
            self.tally.asked += 1
            self.tally.refused += "error" in answer
            if isinstance(found, str):
                self.tally.not_judged[found] += 1
        return found if isinstance(found, Disagreement) else None

    def smallest(self, setting: Draw, found: Disagreement) -> Draw:
        """With everything left out that the disagreement does not need."""
        while True:
            less = (each for each in smaller(setting, self.accepted) if self.ask(each, counted=False) == found)
            after = next(less, None)
            if after is None:
                return setting
            setting = after


def judge(question: Question, answer: Answer) -> Disagreement | str | None:
    """Where the two differ; a text says why it cannot be judged, None that they agree."""
    role = question.spec.topology.roles[0].role if question.spec.topology else "server"
    findings = [each for each in check(question.spec, question.version, question.device) if each.role == role]
    errors = [each for each in findings if each.severity == "error"]
    unseen = NOT_RUN_HERE | (HANG_ON_PAGES if question.device.platform == "rocm" else frozenset())
    loud = [each for each in errors if each.kind in RAISED and each.rule not in unseen]
    error = answer.get("error")
    if error is not None:
        return _refused(error, errors, loud)
    if loud:
        return Disagreement("over-refused", loud[0].rule)
    if errors:
        return f"{errors[0].rule} is not seen here"
    apart = differences(question, answer)
    if apart:
        return Disagreement("resolved otherwise", _kind_of(apart[0]))
    unsaid = [each for each in findings if each.kind == "log" and not _logged(each, answer)]
    return Disagreement("not logged", unsaid[0].rule) if unsaid else None


def _refused(error: dict[str, str], errors: list[Finding], loud: list[Finding]) -> Disagreement | str | None:
    said = _kind_of(f"{error['kind']}: {error['text']} [{error.get('at', '').partition(':')[0]}]")
    if any(same_text(each.says, error["text"]) or error["kind"] == each.kind == "argparse" for each in errors):
        return None
    if error["kind"] in NOT_OURS:
        return said
    if not errors:
        return Disagreement("let through", said)
    # A rule without words of the runtime's may be what it means.
    return Disagreement("refused in other words", said) if len(loud) == len(errors) else None


def _logged(finding: Finding, answer: Answer) -> bool:
    return any(same_text(finding.says, line) for line in answer["log"])


def _kind_of(text: str) -> str:
    """Without the values in it and what is the machine's."""
    flat = re.sub(r"\S*/sglang-models-\S+", "MODEL", " ".join(text.split()))
    return re.sub(r"\b\d+\b", "N", flat)[:300]


def report(version: str, tally: Tally) -> None:
    """The disagreements of a version, and what was asked."""
    for found in tally.kinds:
        print(f"{version} {found.direction}: {found.what} <- {tally.shown[found]} ({tally.seen[found]} times)")
    for why, times in tally.not_judged.most_common():
        print(f"{version} not judged, {times} times: {why}", file=sys.stderr)
    counts = (
        f"{tally.asked} settings, {tally.refused} refused by the runtime, {sum(tally.not_judged.values())} not judged"
    )
    print(f"{version}: {counts}, {len(tally.kinds)} kinds of disagreement", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Small studies for tests: a config file, and what it loads to."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsabench.config.load import load_study as load
from dsabench.config.specs import StudyConfig
from dsabench.model.record import Record
from dsabench.model.runtime import Annotate, Refuse, annotate_nothing, refuse_nothing
from dsabench.reference.runtime import ReferenceRuntime
from dsabench.results.journal import Journal
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.command import Launch
from dsabench.study.budget import RunLimits
from dsabench.study.context import SettingRules, StudyContext
from dsabench.study.next_boot import BootPlan
from dsabench.study.session import StudyObserver
from dsabench.study.space_check import check_space
from factories import ENVIRONMENT, make_record

STUDY = """
name: study
runtime:
  kind: reference
  model: tiny
  base: {kv_cache_dtype: fp8_e4m3, prefill_backend: flashmla_kv, chunked_prefill_size: 256}
  ready_timeout_s: 60
workloads:
  - {name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}
  - {name: two, dataset: random-ids, input_len: 96, output_len: 4, num_prompts: 12, max_concurrency: 4}
sweeps:
  - axes: {prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]}
proposer: {kind: grid}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: {max_trials: 6, confirm_boots: 2}
"""

EXACT = STUDY.replace("max_trials: 6", "max_trials: 6, max_boots: 7")
"""Three boots of the search and four of the confirmation, and not one more."""

SHARED = STUDY.replace(
    "chunked_prefill_size: [128, 256]}", "chunked_prefill_size: [128, 256], pp_max_micro_batch_size: [1, 2, 4]}"
).replace("max_trials: 6, ", "")
"""Thirteen settings in five boots: a running server changes the limit of requests."""

SHORT_EVAL = """
name: short
harness_id: test-short
about: short retrieval
reader: needle
dataset: {licence: Apache-2.0}
prompt: {endpoint: chat, template: "{text} What is the access code of the {colour} {place}?"}
sampling: {temperature: 0.0, top_p: 1.0, max_tokens: 4}
scorer: code
concurrency: 4
needle: {words: [20], depths: [0.5], per_cell: 4, distractors: 0}
"""
"""Four questions, answered in no time."""


def read_until(sweep: subprocess.Popen[str], words: str) -> str:
    """Read a sweep's progress on stderr until these words came; returns what was read."""
    said = ""
    while words not in said:
        line = sweep.stderr.readline() if sweep.stderr else ""
        assert line, said
        said += line
    return said


def wait_for_load(results: Path, requests: int = 20) -> None:
    """Wait until the servers of a sweep's first boot have had so many more requests."""
    first = _requests_seen(results)
    while _requests_seen(results) < first + requests:
        time.sleep(0.01)


def _requests_seen(results: Path) -> int:
    logs = [log.read_text() for log in (results / "boots").glob("**/*.log")]
    urls = [found[1] for log in logs if (found := re.search(r"Listening on (http://\S+)", log))]
    assert urls
    seen = 0
    for url in urls:
        with urllib.request.urlopen(f"{url}/server_info") as answer:
            seen += json.load(answer)["reference"]["counters"]["requests"]
    return seen


def boot_records(boot: BootPlan, records: StudyRecords, name: str, value: float, minute: int = 0) -> list[Record]:
    """What a boot writes where every workload measures this value."""
    return [
        make_record(
            spec=planned.trial.runtime, workload=planned.trial.workload, occasion=planned.occasion, phase=planned.phase,
            boot=name, value=value, minute=minute,
        ).model_copy(update={"turn": planned.turn})
        for planned in boot.trials(records, 0)
    ]  # fmt: skip


def write_study(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def load_study(folder: Path, text: str = STUDY) -> StudyConfig:
    return load(write_study(folder, text))


class Noting(StudyObserver):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def make_context(
    config: StudyConfig,
    folder: Path,
    records: Sequence[Record] = (),
    *,
    refuse: Refuse = refuse_nothing,
    annotate: Annotate = annotate_nothing,
    **limits: Any,
) -> StudyContext:
    """What a study of the embedded runtime is measured with, its journal in the folder; `limits` are those of `RunLimits`."""
    journal = Journal(folder)
    for record in records:
        journal.append(record)
    return StudyContext(
        config,
        journal,
        ReferenceRuntime(Launch()),
        ENVIRONMENT,
        SettingRules(refuse, annotate=annotate),
        RunLimits(**{"budget": config.budget, "round": 0, **limits}),
        check_space(config, refuse),
        measured_before=len(records),
    )

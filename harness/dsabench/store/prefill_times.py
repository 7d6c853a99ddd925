"""Prefill times of servers: lines of a JSONL file, or what the prompt loads of a journal come to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from dsabench import rooms
from dsabench.errors import InputError
from dsabench.model.prefill_time import PrefillTime
from dsabench.model.record import Measured, Record, Trial
from dsabench.model.workload import Workload
from dsabench.store.journal import FILE_NAME, read_journal

_MOST_ANSWER = 1 / 64
"""Tokens generated for one of prompt, at most, for a load to count as prefill."""


def read_prefill_times(path: Path) -> tuple[PrefillTime, ...]:
    """Of a JSONL file of such times, or of a journal or its folder.

    Raises:
        InputError: it cannot be read or has none.

    """
    journal = path / FILE_NAME if path.is_dir() else path
    is_journal = journal.name == FILE_NAME
    found = prefill_times_of(read_journal(journal).records, str(path)) if is_journal else _read(path)
    if not found:
        raise InputError(
            f"{path}: no prefill times (a file of them, or a journal with loads of prompts over an fp8 cache)"
        )
    return found


def _read(path: Path) -> tuple[PrefillTime, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(PrefillTime.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}:{number}: {where}: {first['msg']}") from error
    return tuple(found)


def prefill_times_of(records: Iterable[Record], source: str) -> tuple[PrefillTime, ...]:
    """Time of a load over its prompts, a setting's median over boots, where next to nothing is generated.

    Drafts (MTP) and bfloat16 caches are left out: kernel times of one rank's plain prefill over fp8 say nothing of them.
    """
    seen: dict[PrefillTime, list[float]] = {}
    for record in records:
        found = _of_record(record, source)
        if found is not None:
            seen.setdefault(found.model_copy(update={"ms": 1.0}), []).append(found.ms)
    return tuple(time.model_copy(update={"ms": median(all_ms)}) for time, all_ms in seen.items())


def _of_record(record: Record, source: str) -> PrefillTime | None:
    trial, outcome = record.trial, record.outcome
    if not isinstance(trial, Trial) or not isinstance(outcome, Measured):
        return None
    load, knobs = trial.workload, trial.runtime.knobs
    duration = outcome.metrics.get("duration_s")
    is_prefill = _is_prefill(load)
    if duration is None or not is_prefill or knobs.get("speculative_algorithm", "off") != "off":
        return None
    layers, heads = _sizes(trial.runtime.model)
    try:
        return PrefillTime.model_validate(
            {name: knobs.get(name) for name in ("kv_cache_dtype", "prefill_backend", "mha_threshold_tokens")}
            | {"series": f"{record.study}, {load.name}", "source": source, "layers": layers, "heads": heads}
            | {"chunk_tokens": knobs.get("chunked_prefill_size"), "new_tokens": load.input_len}
            | {"ms": duration.value * 1e3 / load.num_prompts}
        )
    except ValidationError:
        return None


def _is_prefill(load: Workload) -> bool:
    if load.input_len is None or load.output_len is None or load.range_ratio != 1:
        return False
    return load.output_len <= load.input_len * _MOST_ANSWER


def _sizes(model: str) -> tuple[int | None, int | None]:
    """Layers and heads of a slice that `configs/` has."""
    for folder in rooms.folders("configs"):
        file = folder / model / "config.json"
        if file.is_file():
            config = json.loads(file.read_text(encoding="utf-8"))
            return config["num_hidden_layers"], config["num_attention_heads"]
    return None, None

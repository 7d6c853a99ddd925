"""A page of an eval's samples, to browse and filter. Everything in it is escaped: completions are not to be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from dsabench.errors import StoreError
from dsabench.evals.sample import EvalSample
from dsabench.evals.statistics import mean_score
from dsabench.evals.summarise import Tally
from dsabench.model.evals import EvalTask

SAMPLES_MAX = 2000
"""Wrong ones come first, so what is left out is right."""
CHARS_MAX = 20_000
"""Of one text; its beginning and its end are shown."""
_ORDER = ("failed", "no answer", "wrong", "correct")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""No script, no image, no request: markup that slipped through could do nothing."""

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --ground: #fff; --block: #f5f6f8; --line: #d5d9de;
  --right: #2c7a4b; --wrong: #b3261e; --none: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e6ea; --quiet: #9aa4af; --ground: #15181c; --block: #1f242a;
  --line: #3a424b; --right: #4fb477; --wrong: #f2786d; --none: #d9a02b; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 62rem; padding: 0 1rem; color: var(--text);
  background: var(--ground); overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h1 small { font-weight: normal; } h4 { margin: .8rem 0 .3rem; }
pre { white-space: pre-wrap; background: var(--block); padding: .6rem; margin: 0; max-height: 32rem; overflow: auto; }
details { border: 1px solid var(--line); border-left-width: 6px; border-radius: 4px; margin: .4rem 0; padding: .3rem .7rem; }
details.correct { border-left-color: var(--right); } details.wrong { border-left-color: var(--wrong); }
details.no-answer { border-left-color: var(--none); } details.failed { border-left-color: var(--quiet); }
summary { cursor: pointer; } .facts { color: var(--quiet); } .pick { margin: .8rem 0; }
input { margin: 0 .3rem 0 0; } label { white-space: nowrap; display: inline-block; margin-right: 1rem; }
.tag { border: 1px solid var(--none); color: var(--none); border-radius: 3px; padding: 0 .3rem; margin-left: .4rem; }
"""
# Filters without a script: an unticked box hides the samples of its class.
_ONLY = ("truncated", "differing")
_FILTERS = (("correct", "correct"), ("wrong", "wrong"), ("no-answer", "no answer"), ("failed", "failed"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page says of who answered."""

    model: str
    server: str
    """Its address, or the config that booted it."""
    at: datetime


def write_page(path: Path, task: EvalTask, counted: Tally, asked: Asked) -> Path:
    """Write the page; returns its path.

    Raises:
        StoreError: disk full or read-only.

    """
    try:
        path.write_text("\n".join(_page(task, counted, asked)), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    return path


def _page(task: EvalTask, counted: Tally, asked: Asked) -> Iterator[str]:
    samples = sorted(
        counted.samples,
        key=lambda sample: _ORDER.index(sample.standing),
    )
    numbers = {name: sum(sample.standing == name for sample in samples) for name in _ORDER}
    yield "<!doctype html><html lang=en><head><meta charset=utf-8>"
    yield '<meta name=viewport content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    hide = " ".join(f"body:has(#show-{name}:not(:checked)) details.{name} {{ display: none; }}" for name, _ in _FILTERS)
    only = " ".join(f"body:has(#only-{name}:checked) details:not(.{name}) {{ display: none; }}" for name in _ONLY)
    yield f"<title>{escape(task.name)}, {escape(asked.model)}: samples</title><style>{_STYLE}{hide} {only}</style></head><body>"
    yield f"<h1>{escape(task.name)} <small class=facts>{escape(task.harness_id)}</small></h1>"
    yield (
        f"<p>{_inline(asked.model)} at {_inline(asked.server)}, "
        f"<time datetime={asked.at.isoformat()}>{asked.at:%Y-%m-%d %H:%M} UTC</time>.</p>"
    )
    yield (
        f"<p>score {mean_score(counted.scores).value:.4f}{_original(counted)}. {counted.total} answers to {len(counted.questions)} questions, {task.repeat} each. "
        f"temperature {task.temperature:g}, top_p {task.top_p:g}, max_tokens {task.max_tokens}, "
        f"thinking {escape(task.thinking or 'off')}.</p>"
    )
    for name, label in _FILTERS:
        yield f"<label><input type=checkbox id=show-{name} checked>{label} ({numbers[label]})</label>"
    yield f"<label><input type=checkbox id=only-truncated>only cut ones ({counted.truncated})</label>"
    if counted.has_original:
        yield f"<label><input type=checkbox id=only-differing>only where the graders differ ({len(counted.differing)})</label>"
    yield "<main class=pick>"
    for sample in samples[:SAMPLES_MAX]:
        yield from _shown(sample)
    if len(samples) > SAMPLES_MAX:
        yield f"<p>{len(samples) - SAMPLES_MAX} further samples are in the JSONL beside this page.</p>"
    yield "</main></body></html>"


def _original(counted: Tally) -> str:
    """The score of the original's grader, where it was asked as well."""
    if not counted.has_original:
        return ""
    return f" (the original's grader: {mean_score(counted.as_original().scores).value:.4f})"


def _shown(sample: EvalSample) -> Iterator[str]:
    classes = sample.standing.replace(" ", "-")
    classes += (" truncated" if sample.truncated else "") + (" differing" if sample.graders_differ else "")
    tags = ("<span class=tag>cut</span>" if sample.truncated else "") + (
        "<span class=tag>graders differ</span>" if sample.graders_differ else ""
    )
    yield f"<details class='{classes}'><summary>{_inline(sample.id)}: {escape(sample.standing)}{tags} "
    answer, expected = _inline(sample.answer), _inline(sample.expected)
    took = f", the original's grader took {_inline(sample.original_answer)}" if sample.graders_differ else ""
    yield f"<span class=facts>answer {answer}{took}, expected {expected}</span></summary>"
    facts = [
        f"{sample.completion_tokens} tokens" if sample.completion_tokens is not None else None,
        f"{sample.latency_s:.1f} s" if sample.latency_s is not None else None,
        f"finished by {sample.finish_reason}" if sample.finish_reason else None,
        f"{sample.attempts} attempts" if sample.attempts > 1 else None,
    ]
    yield f"<p class=facts>{escape(', '.join(fact for fact in facts if fact))}</p>"
    if sample.error is not None:
        yield f"<p class=facts dir=auto>{escape(_cut(sample.error, CHARS_MAX))}</p>"
    for title, text in (("prompt", sample.prompt), ("reasoning", sample.reasoning), ("completion", sample.completion)):
        if text is not None:
            yield f"<h4>{title}</h4><pre dir=auto>{escape(_cut(text, CHARS_MAX))}</pre>"
    yield "</details>"


def _inline(text: str | None) -> str:
    """A short text; `bdi` keeps its direction of writing from what follows."""
    return "–" if text is None else f"<bdi>{escape(_cut(text, 200))}</bdi>" if text.strip() else "(empty)"


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"

"""A server's script that replays generated completions, and how the originals' verdicts on them are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import eval_cases
from dsabench.config.load import load_eval
from dsabench.evals.plan import Plan, Wishes, make_plan
from dsabench.evals.readers import mmlu
from openai_server import Turn


@dataclass(frozen=True)
class Replay:
    """Questions, and a completion for each."""

    eval: str
    plan: Plan
    data: Path
    completions: list[str]

    def turn(self, prompt: str) -> Turn:
        """The completion that belongs to the prompt; an unknown prompt fails, so a different one cannot pass."""
        texts = {q.prompt: text for q, text in zip(self.plan.questions, self.completions, strict=True)}
        if prompt.startswith("Name the capital"):
            return Turn("Paris")
        return Turn(texts[prompt]) if prompt in texts else Turn(status=400)

    def golden(self, found: dict[str, Any]) -> dict[str, Any]:
        """What is kept of the originals' output: no prompts, but a sum over them."""
        answers = found.get("answers") or found.get("invalid") or [None] * len(found["scores"])
        rows = zip(self.completions, self.plan.questions, answers, found["scores"], strict=True)
        return {
            "eval": self.eval,
            "prompts_sha256": digest_of(found["prompts"]) if "prompts" in found else None,
            "metrics": found.get("metrics"),
            "mean": found.get("mean"),
            "cases": [[text, question.expected, answer, score] for text, question, answer, score in rows],
        }


def digest_of(prompts: list[str]) -> str:
    return hashlib.sha256("\0".join(prompts).encode()).hexdigest()


def replays() -> dict[str, Callable[[Path], Replay]]:
    """Eval → its replay, with its data below a folder."""
    return {
        "gsm8k": lambda folder: _numbers("gsm8k", folder, Wishes(num_shots=5), seed=1),
        "gsm8k-clean": lambda folder: _numbers("gsm8k-clean", folder, Wishes(num_shots=5), seed=2),
        "gpqa": _gpqa,
        "aime25": _aime,
        "aime25-sglang": _aime_sglang,
        "mmlu": _mmlu,
    }


def _numbers(name: str, folder: Path, wishes: Wishes, *, seed: int) -> Replay:
    data = folder / "data.jsonl"
    eval_cases.write_gsm8k(data)
    plan = make_plan(load_eval(name), wishes, "scripted", data)
    return Replay(name, plan, data, eval_cases.numbers([question.expected for question in plan.questions], seed))


def _gpqa(folder: Path) -> Replay:
    data = folder / "data.csv"
    eval_cases.write_gpqa(data)
    plan = make_plan(load_eval("gpqa"), Wishes(num_examples=300), "scripted", data)
    return Replay("gpqa", plan, data, eval_cases.letters([question.expected for question in plan.questions], 3))


def _aime(folder: Path) -> Replay:
    data = folder / "data.jsonl"
    expected = eval_cases.write_aime(data)
    plan = make_plan(load_eval("aime25"), Wishes(repeat=1), "scripted", data)
    return Replay("aime25", plan, data, eval_cases.boxed(expected, 4))


def _aime_sglang(folder: Path) -> Replay:
    data = folder / "data.jsonl"
    expected = eval_cases.write_aime(data)
    plan = make_plan(load_eval("aime25-sglang"), Wishes(repeat=1), "scripted", data)
    texts = eval_cases.numbers(expected, 5, eval_cases.ANSWER_LEADS, eval_cases.ANSWER_TAILS)
    # The original dies of a number beyond the range of floats (OverflowError).
    return Replay("aime25-sglang", plan, data, [text.replace("9" * 5000, "9" * 50) for text in texts])


def _mmlu(folder: Path) -> Replay:
    eval_cases.write_mmlu(folder / "mmlu")
    # Words instead of tokens, as in the child: tiktoken fetches its vocabulary, and tests fetch nothing.
    with patch.object(mmlu, "count_tokens", lambda text: len(text.split())):
        plan = make_plan(load_eval("mmlu"), Wishes(), "scripted", folder / "mmlu")
    return Replay("mmlu", plan, folder / "mmlu", eval_cases.letters([q.expected for q in plan.questions], 6))

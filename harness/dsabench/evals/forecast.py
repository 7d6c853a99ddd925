"""How long a model takes to answer an eval, before it is asked."""

from __future__ import annotations

from dsabench.evals.gate_plan import plan_gate, questions_known
from dsabench.evals.plan import Wishes, with_wishes
from dsabench.model.evals import EvalSpec
from dsabench.model.study import GateSpec

_LONGEST = 4.0
"""The longest answer of a hundred, as a multiple of the mean: of AIME 2025 V3.2 writes 15,040 tokens on average, and its published
runs last as long as 64,000 tokens at 40 tokens/s."""
_TOKENS_PER_WORD = 1.3


def answering_s(
    gate: GateSpec, spec: EvalSpec, model: str, stream_tok_s: float | None, prefill_tok_s: float | None
) -> float | None:
    """Seconds in which one setting answers what a gate asks; see `asking_s`.

    Raises:
        InputError: the gate can decide nothing.

    """
    spec = with_wishes(spec, Wishes(), model)
    questions = questions_known(spec)
    if questions is None:
        return None
    agrees = gate.measure == "agreement"
    passes = gate.agreement_passes if agrees else plan_gate(gate, spec, questions, model).repeats
    return asking_s(spec, passes, stream_tok_s, prefill_tok_s)


def asking_s(spec: EvalSpec, passes: int, stream_tok_s: float | None, prefill_tok_s: float | None) -> float | None:
    """Seconds of all passes over an eval.

    Args:
        spec: the eval, with the settings of the model.
        passes: how often each question is asked.
        stream_tok_s: generated tokens per second and request; None if no speed is assumed.
        prefill_tok_s: prompt tokens per second.

    Returns:
        Seconds; None if the number of questions or a speed is unknown.

    """
    questions = questions_known(spec)
    if questions is None or stream_tok_s is None or prefill_tok_s is None:
        return None
    answers, tokens = questions * passes, answer_tokens(spec)
    streams = min(spec.concurrency, answers)
    longest = min(_LONGEST * tokens, spec.sampling.max_tokens)
    return max(answers * tokens / streams, longest) / stream_tok_s + passes * _prompt_tokens(spec) / prefill_tok_s


def answer_tokens(spec: EvalSpec) -> float:
    """Tokens of an answer on average: as published, else as the eval's file says, else as many as are allowed."""
    told = (one.scores.get("completion_tokens.mean") for one in spec.published)
    stated = spec.forecast.answer_tokens or spec.sampling.max_tokens
    return min(next((float(tokens) for tokens in told if tokens is not None), stated), spec.sampling.max_tokens)


def _prompt_tokens(spec: EvalSpec) -> float:
    """Of one pass. Examples before a question are cached, and the questions of the known evals are short."""
    if spec.needle is None:
        return 0.0
    each = len(spec.needle.depths) * spec.needle.per_cell
    return _TOKENS_PER_WORD * each * sum(spec.needle.words)

"""Settings of an eval for the model that answers."""

from __future__ import annotations

import pytest

from dsabench.config.load import load_eval
from dsabench.evals.plan import Wishes, with_wishes


@pytest.mark.parametrize(
    ("model", "temperature", "top_p", "max_tokens", "thinking"),
    [
        ("deepseek-ai/DeepSeek-V3.2-Exp", 0.0, 1.0, 128000, "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.2", 1.0, 0.95, 128000, "deepseek-v3"),
        ("/models/deepseek-v3.2-nvfp4", 1.0, 0.95, 128000, "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.2-Speciale", 1.0, 0.95, 120000, "deepseek-v3"),
        ("zai-org/GLM-5.2-FP8", 0.0, 1.0, 128000, "glm-45"),
    ],
)
def test_gpqa_is_sampled_as_was_published_for_the_model(model, temperature, top_p, max_tokens, thinking) -> None:
    spec = with_wishes(load_eval("gpqa"), Wishes(), model)
    sampling = spec.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (temperature, top_p, max_tokens)
    assert spec.prompt.thinking == thinking
    same = [one for one in spec.published if one.model == model and "temperature" in one.settings]
    assert all(one.settings["temperature"] == temperature and one.settings["top_p"] == top_p for one in same)


def test_the_command_line_comes_over_the_model_and_no_eval_begins_to_think() -> None:
    spec = with_wishes(load_eval("gpqa"), Wishes(temperature=0.3, thinking="qwen3"), "zai-org/GLM-5.2-FP8")
    assert (spec.sampling.temperature, spec.prompt.thinking) == (0.3, "qwen3")
    assert with_wishes(load_eval("gpqa"), Wishes(no_thinking=True), "zai-org/GLM-5.2").prompt.thinking is None
    assert with_wishes(load_eval("gsm8k-clean"), Wishes(), "zai-org/GLM-5.2").prompt.thinking is None

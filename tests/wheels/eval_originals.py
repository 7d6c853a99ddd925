"""Runs inside a child interpreter that has the originals' libraries: an eval as its original runs it, score by score.

`python eval_originals.py WHEEL_FOLDER EVAL BASE_URL DATA OUT`. Nothing of dsabench is imported. The module under test
runs unchanged; only its last mean is watched for the scores that went into it.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any


def enter_wheel(wheel: Path) -> types.ModuleType:
    """`sglang` as a package of the wheel's files without running its __init__, which imports torch."""
    package = types.ModuleType("sglang")
    package.__path__ = [str(wheel / "sglang")]
    sys.modules["sglang"] = package
    for name in ("IPython", "IPython.display"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["IPython.display"].HTML = sys.modules["IPython.display"].display = lambda *_: None
    api = import_module("sglang.lang.api")
    package.function, package.gen = api.function, api.gen
    return package


class WatchedNumpy:
    """numpy, remembering the first argument of every mean."""

    def __init__(self, numpy: Any) -> None:
        self._numpy, self.means = numpy, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)

    def mean(self, values: Any) -> Any:
        self.means.append(self._numpy.asarray(values))
        return self._numpy.mean(values)


def few_shot_gsm8k(url: str, data: Path) -> dict[str, Any]:
    module = import_module("sglang.test.few_shot_gsm8k")
    module.np = watched = WatchedNumpy(module.np)
    host, _, port = url.rpartition(":")
    args = argparse.Namespace(
        host=host,
        port=int(port),
        data_path=str(data),
        num_questions=10_000,
        num_shots=5,
        max_new_tokens=512,
        parallel=64,
    )
    said = module.run_eval(args)
    right, invalid = watched.means[:2]
    return {
        "scores": [int(one) for one in right],
        "invalid": [int(one) for one in invalid],
        "mean": float(said["accuracy"]),
    }


def simple_eval(name: str, url: str, data: Path) -> dict[str, Any]:
    """An eval of run_eval over the openai client."""
    common = import_module("sglang.test.simple_eval_common")
    seen: list[Any] = []
    aggregate = common.aggregate_results

    def watched(results: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend(results)
        return aggregate(results, *args, **kwargs)

    common.aggregate_results = watched
    if name == "gpqa":
        evaluation = import_module("sglang.test.simple_eval_gpqa").GPQAEval(str(data), 300, 64)
    elif name == "gsm8k-clean":
        evaluation = import_module("sglang.test.simple_eval_gsm8k").GSM8KEval(None, 64, 5, str(data))
    else:
        module = import_module("sglang.test.simple_eval_aime25")
        evaluation = module.AIME25Eval.__new__(module.AIME25Eval)  # its __init__ fetches from Hugging Face
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        evaluation.examples = [{"question": row["problem"], "answer": row["expected_answer"]} for row in rows]
        evaluation.num_threads = 64
    os.environ["OPENAI_API_KEY"] = "EMPTY"  # as run_eval does
    sampler = common.ChatCompletionSampler(base_url=f"{url}/v1")
    result = evaluation(sampler)
    return {
        "scores": [int(one.score) for one in seen],
        "prompts": [one.convo[0]["content"] for one in seen],
        "mean": float(result.score),
    }


def nemo_aime(_url: str, data: Path) -> dict[str, Any]:
    """sgl-eval's vendored evaluator and metrics, four answers to a question."""
    import asyncio

    from sgl_eval._vendored.nemo_skills.evaluator.math import MathEvaluator
    from sgl_eval._vendored.nemo_skills.math_metrics import MathMetrics
    from sgl_eval.evals._math import render_math_prompt
    from sgl_eval.evals._prompts import vendored_prompt

    evaluator, metrics = MathEvaluator(config={}), MathMetrics()
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    graded = [asyncio.run(evaluator.eval_single(dict(row))) for row in rows]
    for start in range(0, len(graded) - 3, 4):
        metrics.update(graded[start : start + 4])
    return {
        "scores": [int(bool(one["symbolic_correct"])) for one in graded],
        "answers": [one["predicted_answer"] for one in graded],
        "prompts": [render_math_prompt(vendored_prompt("math"), row["problem"]) for row in rows],
        "metrics": metrics.get_metrics(),
    }


def bench_mmlu(url: str, data: Path, script: Path) -> dict[str, Any]:
    """benchmark/mmlu/bench_sglang.py of the repository (no wheel has it), its tokenizer counting words."""
    endpoint = import_module("sglang.lang.backend.runtime_endpoint").RuntimeEndpoint
    utils = types.ModuleType("sglang.test.test_utils")

    def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
        args = parser.parse_args(["--data_dir", str(data)])
        args.backend, args.parallel, args.result_file = "srt", 64, "/dev/null"
        return args

    utils.add_common_sglang_args_and_parse = parse
    utils.select_sglang_backend = lambda _: endpoint(url)
    sys.modules["sglang.test.test_utils"] = utils
    tiktoken = types.ModuleType("tiktoken")
    tiktoken.encoding_for_model = lambda _: types.SimpleNamespace(encode=str.split)
    sys.modules["tiktoken"] = tiktoken
    import numpy as np

    means: list[Any] = []
    plain = np.mean
    np.mean = lambda values: means.append(list(values)) or plain(values)
    sys.argv = [str(script)]
    runpy.run_path(str(script), run_name="__main__")
    return {"scores": [int(one) for one in means[-1]], "mean": float(plain(means[-1]))}


def main() -> None:
    wheel, name, url, data, out, *rest = sys.argv[1:]
    enter_wheel(Path(wheel))
    if name == "gsm8k":
        found = few_shot_gsm8k(url, Path(data))
    elif name == "aime25":
        found = nemo_aime(url, Path(data))
    elif name == "mmlu":
        found = bench_mmlu(url, Path(data), Path(rest[0]))
    else:
        found = simple_eval(name, url, Path(data))
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

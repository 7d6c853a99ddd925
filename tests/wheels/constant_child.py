"""Runs the unit test of a pull request's constant against a checkout's own function, without SGLang's dependencies.

    python -B constant_child.py CHECKOUT/python TEST

As in patched_child.py the function is taken out of its module by the syntax tree; names around it are stand-ins.
"""

from __future__ import annotations

import sys
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from patched_child import ForwardMode, Lengths, put, take

OWNER = "DeepseekSparseAttnBackend"


def main() -> None:
    put("torch", tensor=Lengths, bfloat16=object(), float8_e4m3fn=object())
    graphs = {f"is_in_{name}": lambda: False for name in ("breakable_cuda_graph", "tc_piecewise_cuda_graph")}
    put("sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.context", **graphs)
    put("sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph", **graphs)
    put("sglang.srt.utils", get_device_sm=lambda: 0, is_blackwell=lambda: None)
    put("sglang.srt.model_executor.forward_batch_info", ForwardMode=ForwardMode)
    put("sglang.test.ci.ci_register", register_cpu_ci=lambda **_: None)
    threshold = types.SimpleNamespace(get=lambda: 2048)
    envs = types.SimpleNamespace(SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD=threshold)
    module = put(
        "sglang.srt.layers.attention.dsa_backend",
        torch=sys.modules["torch"],
        ForwardMode=ForwardMode,
        envs=envs,
        is_dsa_enable_prefill_cp=lambda: True,
        _IS_GFX95=False,
    )
    decide = take(("set_dsa_prefill_impl",), ["srt/layers/attention/dsa_backend.py"], module.__dict__)
    module.__dict__[OWNER] = type(OWNER, (), {"set_dsa_prefill_impl": decide})
    sys.modules["sglang.srt.layers.attention"].dsa_backend = module
    test = types.ModuleType("test")
    exec(compile(Path(sys.argv[2]).read_text(), sys.argv[2], "exec"), test.__dict__)
    found = unittest.defaultTestLoader.loadTestsFromModule(test)
    done = unittest.TextTestRunner().run(found)
    sys.exit(0 if done.testsRun and done.wasSuccessful() else 1)


if __name__ == "__main__":
    main()

"""Two published tuning ladders, served: which of their steps do boots in turns bear out?

    python tests/ladder.py                   # every step, about two minutes
    python tests/ladder.py --step parser     # one of them

Both pages (GPUStack's lab, GLM-5.2-FP8 on sglang 0.5.14 and DeepSeek-V3.2 on 0.5.6.post2, 8 × H200) ran each step once. The same flags
stand on one of them twice, at 7,011 and 5,882 tok/s, so boots differ by about 16 %. A stand-in server with sglang's flags and sockets
answers at the published mean of each setting, times a factor of its boot: log-normal, 16 %. `dsabench sweep` measures both sides of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sglang_server import install_server

ROOT = Path(__file__).parents[1]
BETWEEN_BOOTS = 0.16
BOOTS = 6
"""A side, at most, as in configs/h200.yaml: the sweep stops when it is decided."""
_FASTEST = 18_000.0
"""tok/s at which the stand-in pauses 10 ms before a token."""
_SCRIPT = """
import os, pathlib, random
STEP, SEED = {step!r}, {seed!r}
boots = pathlib.Path(os.environ["STAND_IN_SCRIPT"]).with_name("boots")
with boots.open("a") as file:  # one byte a boot: boots come one after another
    file.write(".")
factor = random.Random(f"{{SEED}} {{STEP['after']}} {{boots.stat().st_size}}").lognormvariate(0.0, {spread})

def pause_s(settings):
    is_changed = all(settings.get(name) == value for name, value in STEP["flags"].items())
    return 0.010 * {fastest} / (STEP["after"] if is_changed else STEP["before"]) / factor
"""


@dataclass(frozen=True)
class Step:
    """One step of a page: a setting, and total tok/s before and after it in one run each."""

    words: str
    base: dict[str, Any]
    changed: dict[str, Any]
    flags: dict[str, Any]
    """By which the server knows the change."""
    before: float
    after: float
    published: str
    expected: tuple[str, ...]

    @property
    def truth(self) -> float:
        """The ratio that is served, minus 1."""
        return self.after / self.before - 1.0


_DP = {"tp_size": 8, "dp_attention": True}
STEPS = {
    "parser": Step(
        "a tool-call parser (V3.2)", {}, {"tool_call_parser": "deepseekv32"}, {"tool_call_parser": "deepseekv32"},
        7_352, 7_352, "7,352 to 8,376, +13.9 %", ("no difference", "inconclusive"),
    ),
    "dp": Step(
        "DP 8 beside DP attention (GLM-5.2)", {**_DP, "dp_size": 1}, {"dp_size": 8}, {"dp_size": 8},
        6_372, 7_011, "6,372 to 7,011, +10.0 %", ("inconclusive",),
    ),
    "running": Step(
        "256 running requests for 64 (GLM-5.2)", {"max_running_requests": 64}, {"max_running_requests": 256}, {"max_running_requests": 256},
        9_959, 14_451, "9,959 to 14,451, +45.1 %", ("better",),
    ),
    "memory": Step(
        "memory fraction 0.80 for auto (GLM-5.2)", {"mem_fraction_static": 0.75}, {"mem_fraction_static": 0.8}, {"mem_fraction_static": 0.8},
        6_533, 10_573, "6,533 to 10,573, +61.8 %", ("better",),
    ),
    "kernels": Step(
        "fa3 for flashmla (V3.2)", {"prefill_backend": "flashmla_sparse", "decode_backend": "flashmla_sparse", "kv_cache_dtype": "bfloat16"},
        {"prefill_backend": "fa3"}, {"dsa_prefill_backend": "fa3"},
        5_362, 8_968, "5,362 to 8,968, +67.2 %", ("better",),
    ),
}  # fmt: skip


def write_study(folder: Path, step: Step, seed: int) -> Path:
    """The config of a step, with its stand-in server."""
    served = {"flags": step.flags, "before": step.before, "after": step.after}
    script = _SCRIPT.format(step=served, seed=seed, spread=BETWEEN_BOOTS, fastest=_FASTEST)
    (folder / "script.py").write_text(script)
    study = yaml.safe_load((ROOT / "configs" / "h200-slice.yaml").read_text())
    env = {"PYTHONPATH": str(install_server(folder / "site")), "STAND_IN_SCRIPT": str(folder / "script.py")}
    study["runtime"]["launch"] = {"python": sys.executable, "env": {**env, "STAND_IN_BOOT_S": "0"}}
    study["runtime"]["base"] |= step.base
    load = {"name": "load", "dataset": "random-ids", "input_len": 32, "output_len": 12, "num_prompts": 16}
    base = study["runtime"]["base"]
    axes = {name: [*([base[name]] if name in base else []), value] for name, value in step.changed.items()}
    study |= {
        "name": "ladder",
        "workloads": [{**load, "max_concurrency": 16}],
        "first": [],
        "sweeps": [{"axes": axes}],
        "objective": {"metric": "total_throughput_tok_s", "direction": "maximize"},
        "budget": {"confirm_boots": BOOTS, "stop_when_decided": True},
        "gate": None,
    }
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    return file


def measure(folder: Path, step: Step, seed: int = 1) -> dict[str, Any]:
    """Run the sweep of a step; returns the JSON that it printed."""
    config = write_study(folder, step, seed)
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(folder / "out"), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{step.words}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print a Markdown table; 1 if a verdict is not what was expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| step | published, one run a side | served | verdict | effect | interval | boots a side |")
    print("|---|---|--:|---|--:|--:|--:|")
    wrong = 0
    for name in [given.step] if given.step else STEPS:
        step = STEPS[name]
        with tempfile.TemporaryDirectory() as folder:
            (verdict,) = measure(Path(folder), step, given.seed)["verdicts"]
        effect, low, high = (f"{100 * verdict[key]:+.1f} %" for key in ("effect", "ci_low", "ci_high"))
        served = "the same" if step.truth == 0.0 else f"{100 * step.truth:+.1f} %"
        cells = (step.words, step.published, served, verdict["verdict"], effect, f"{low} to {high}", verdict["n_base"])
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        wrong += verdict["verdict"] not in step.expected
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

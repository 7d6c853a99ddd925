"""Speed of the reference engine, without HTTP: decode, prefill, dense against sparse prefill, HiSparse.

    python tests/reference_speed.py speed [--model trained] [--rounds 3] [--against OTHER_CHECKOUT]…
    python tests/reference_speed.py crossover
    python tests/reference_speed.py hisparse

`speed` runs checkouts in turns, so that what the machine does meanwhile hits all of them, and also counts tokens per second
of CPU time, which other processes disturb less. Prints JSON lines. `taskset -c 1` before it makes engines with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
PLAIN = ("--disable-radix-cache",)
Clock = Callable[[], float]
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)


def found(*names: str) -> ModuleType:
    """The first of these modules that there is: a checkout that is compared with may be older and have it elsewhere."""
    for name in names[:-1]:
        with suppress(ImportError):
            return import_module(name)
    return import_module(names[-1])


def settings_module() -> Any:
    return found("dsabench.reference.server.resolve_settings", "dsabench.serving.resolve")


def make_engine(*flags: str, model: str = "small", **env: str) -> Any:
    """An engine of this checkout, or of an older one."""
    parse = found("dsabench.reference.server.arguments", "dsabench.serving.arguments").parse
    engine_class = found("dsabench.reference.engine.engine", "dsabench.reference.engine").Engine
    words = ["--model-path", model, "--log-level", "error", *flags]  # a thread per core that the process may use
    engine = engine_class(settings_module().resolve(parse(words), env))
    engine.warm_up()
    return engine


def add(engine: Any, length: int, new: int, seed: int) -> Any:
    requests = found("dsabench.reference.engine.request", "dsabench.reference.request")
    prompt = random.Random(seed).choices(range(256), k=length)
    sampling = getattr(requests, "SamplingParams", None) or requests.Sampling
    request = requests.Request(f"{seed}", prompt, sampling(new, temperature=0.0, ignore_eos=True))
    engine.scheduler.add(request)
    return request


def decode_tok_s(engine: Any, clock: Clock, batch: int = 8, length: int = 192, new: int = 96) -> float:
    requests = [add(engine, length, new, seed) for seed in range(batch)]
    while engine.scheduler.waiting or engine.scheduler.prefilling:
        engine.step()
    before, started = sum(len(one.output) for one in requests), clock()
    while engine.step() is not None:
        pass
    return (sum(len(one.output) for one in requests) - before) / (clock() - started)


def prefill_tok_s(engine: Any, length: int, clock: Clock = time.perf_counter) -> float:
    request = add(engine, length, 1, length)
    started = clock()
    while request.finish is None:
        engine.step()
    seconds = clock() - started
    engine.step()
    return length / seconds


def measure_once(model: str) -> None:
    """One round of a checkout, in a process of its own."""
    engine = make_engine(*PLAIN, model=model)
    prefill_tok_s(engine, 2048)
    found: dict[str, float] = {}
    for name, clock in (("tok_s", time.perf_counter), ("tok_cpu_s", time.process_time)):
        found[f"decode_{name}"] = max(decode_tok_s(engine, clock) for _ in range(2))
        found[f"prefill_2k_{name}"] = max(prefill_tok_s(engine, 2048, clock) for _ in range(3))
    print(json.dumps(found))


def speed(model: str, rounds: int, checkouts: list[Path]) -> None:
    for number in range(rounds):
        for checkout in checkouts if number % 2 == 0 else checkouts[::-1]:
            env = os.environ | {"PYTHONPATH": f"{checkout / 'harness'}{os.pathsep}{checkout / 'kernels'}"}
            words = [sys.executable, __file__, "once", "--model", model]
            done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
            print(
                json.dumps({"checkout": checkout.name, "model": model, "round": number, **json.loads(done.stdout)}),
                flush=True,
            )


def crossover() -> None:
    """Prompt length → tokens per second of each prefill path, best of three in turns."""
    flags = ("--chunked-prefill-size", "-1", *PLAIN)
    engines = {
        "dense_mha": make_engine(*flags, **{settings_module().MHA_VARIABLE: "16384"}),
        "flashmla_sparse": make_engine(*flags, **{settings_module().MHA_VARIABLE: "0"}),
    }
    for length in LENGTHS:
        rates = dict.fromkeys(engines, 0.0)
        for _ in range(3):
            for name, engine in engines.items():
                rates[name] = max(rates[name], prefill_tok_s(engine, length))
        print(json.dumps({"tokens": length, **rates, "faster": max(rates, key=lambda one: rates[one])}), flush=True)


def hisparse() -> None:
    """8k requests that run at once: with the same room for rows on the device, and with the same bytes of KV on it."""
    hot = ("--enable-hisparse", "--hisparse-config")
    config = {"device_buffer_size": 512, "host_to_device_ratio": 8}
    serve("rows", make_engine(*PLAIN, "--max-total-tokens", "16384"))
    serve("rows", make_engine(*PLAIN, "--max-total-tokens", "16384", *hot, json.dumps(config)))
    config = {"device_buffer_size": 128, "host_to_device_ratio": 13}
    subject = make_engine(*PLAIN, "--max-total-tokens", "10240", *hot, json.dumps(config))
    plain = make_engine(*PLAIN, "--max-total-tokens", "8192")
    tokens = subject.kv_bytes * 8192 // plain.kv_bytes
    serve("bytes", make_engine(*PLAIN, "--max-total-tokens", str(tokens)))
    serve("bytes", subject)


def serve(cap: str, engine: Any, requests: int = 16, length: int = 8192, new: int = 32) -> None:
    for seed in range(requests):
        add(engine, length, new, seed)
    started = time.perf_counter()
    while engine.step() is not None:
        pass
    found = {
        "same": cap,
        "hisparse": engine.scheduler.hot is not None,
        "row_tokens_on_device": engine.settings.device_tokens,
        "kv_mb_on_device": engine.kv_bytes / 1e6,
        "concurrent": max(engine.counters.decode_step_requests),
        "seconds": time.perf_counter() - started,
        "hot_buffer": dict(engine.counters.hot_buffer),
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "crossover", "hisparse", "once"))
    parser.add_argument("--model", default="small", help="of `speed`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, action="append", default=[])
    args = parser.parse_args()
    if args.what == "speed":
        speed(args.model, args.rounds, [ROOT, *args.against])
    elif args.what == "once":
        measure_once(args.model)
    else:
        {"crossover": crossover, "hisparse": hisparse}[args.what]()


if __name__ == "__main__":
    main()

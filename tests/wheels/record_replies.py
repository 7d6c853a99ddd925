"""Writes tests/golden/bench_serving/recording.json: raw replies of the reference runtime, with arrival times.

    python tests/wheels/record_replies.py

Every read as it came from the socket (bytes as Latin-1 text). Of some /generate replies frames are left out, so that
those that stay bring several tokens each, as with speculative decoding. Afterwards run `make_bench_figures.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dsabench.load.drive import send_plan
from dsabench.load.plan import ClosedLoop, LoadPlan
from dsabench.load.read.recording import Recording
from dsabench.load.requests import EndpointName, LoadTarget
from dsabench.model.sample import Prompt

TARGET = Path(__file__).parents[1] / "golden" / "bench_serving" / "recording.json"
ASKED: tuple[tuple[EndpointName, int], ...] = (("generate", 12), ("completions", 5), ("chat", 5))


def main() -> None:
    argv = [sys.executable, "-m", "dsabench.reference.launch_server", "--model", "tiny", "--port", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(line.split()[-1] for line in server.stderr if "Listening on" in line)
        next(line for line in server.stderr if "ready to roll" in line)
        replies = [one for endpoint, count in ASKED for one in asyncio.run(record(url, endpoint, count))]
        server.terminate()
    lines = ",\n".join(json.dumps(reply) for reply in replies)
    TARGET.write_text(f"[\n{lines}\n]\n")


async def record(url: str, endpoint: EndpointName, count: int) -> list[dict[str, Any]]:
    words = random.Random(len(endpoint))
    prompts = [
        Prompt(20 + i, 4 + 3 * (i % 4), text="".join(words.choices("abcdefgh é", k=20 + i)))
        if endpoint == "chat"
        else Prompt(20 + i, 4 + 3 * (i % 4), input_ids=tuple(words.choices(range(256), k=20 + i)))
        for i in range(count)
    ]
    target = LoadTarget(url, "tiny", endpoint=endpoint, usage=False)
    plan = LoadPlan(target.url, [target.body(prompt) for prompt in prompts], ClosedLoop(3))
    recording = (await send_plan(plan)).recording
    thinned = words.sample(range(count), count // 2) if endpoint == "generate" else []
    replies = [reply_of(endpoint, prompts[i], recording, i, thin=i in thinned) for i in range(count)]
    if endpoint == "generate":
        first = replies[3]["reads"][0]
        first[1] = re.sub(r'"text":"[^"]+"', '"text":""', first[1])
    replies[1] |= {"status": 503, "reads": []}
    return replies


def reply_of(endpoint: str, prompt: Prompt, recording: Recording, index: int, *, thin: bool) -> dict[str, Any]:
    assert recording.error(index) is None
    reads = list(recording.reads(index))
    if thin:  # never the last ones, which end the stream
        keep = random.Random(index)
        last = len(reads) - 2
        reads = [read for place, read in enumerate(reads) if place == 0 or place >= last or keep.random() < 0.4]
    return {
        "endpoint": endpoint,
        "prompt_len": prompt.input_len,
        "output_len": prompt.output_len,
        "sent_s": round(float(recording.sent_s[index]), 7),
        "reads": [[round(at_s, 7), data.decode("latin-1")] for at_s, data in reads],
    }


if __name__ == "__main__":
    main()

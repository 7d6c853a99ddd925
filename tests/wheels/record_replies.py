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

from dsabench.load.transport import Transport

from dsabench.load.drive import Delivery, closed_loop
from dsabench.load.target import EndpointName, Target
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
    target = Target(url, "tiny", endpoint=endpoint, usage=False)
    async with Transport(target.url, 30.0) as transport:
        deliveries = await closed_loop(lambda i: transport.post(target.body(prompts[i])), count, 3)
    begin_s = min(delivery.exchange.sent_s for delivery in deliveries)
    thinned = words.sample(range(count), count // 2) if endpoint == "generate" else []
    replies = [reply_of(endpoint, prompts[d.index], d, begin_s, thin=d.index in thinned) for d in deliveries]
    if endpoint == "generate":
        first = replies[3]["reads"][0]
        first[1] = re.sub(r'"text":"[^"]+"', '"text":""', first[1])
    replies[1] |= {"status": 503, "reads": []}
    return replies


def reply_of(endpoint: str, prompt: Prompt, delivery: Delivery, begin_s: float, *, thin: bool) -> dict[str, Any]:
    exchange = delivery.exchange
    assert exchange.error is None, exchange.error
    reads = list(exchange.reads)
    if thin:  # never the last ones, which end the stream
        keep = random.Random(delivery.index)
        reads = [
            read
            for place, read in enumerate(reads)
            if place in {0, len(reads) - 2, len(reads) - 1} or keep.random() < 0.4
        ]
    return {
        "endpoint": endpoint,
        "prompt_len": prompt.input_len,
        "output_len": prompt.output_len,
        "sent_s": round(exchange.sent_s - begin_s, 7),
        "reads": [[round(at_s - begin_s, 7), data.decode("latin-1")] for at_s, data in reads],
    }


if __name__ == "__main__":
    main()

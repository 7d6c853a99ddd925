"""Ask servers for one token in turns.

    python tests/load_benchmark/ask_in_turns.py NAME=http://127.0.0.1:30000 NAME=http://… > asks.jsonl

128 new tokens after 4,096 cached ones, 3,000 new ones, 160 after 24,000; a line per server and turn with the milliseconds of each.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

TURNS, QUESTIONS, LONG_QUESTIONS = 2, 10, 6
DICE = random.Random()  # other tokens in each run: what an earlier one left in a server's prefix cache must not be met


@dataclass
class Server:
    name: str
    link: http.client.HTTPConnection

    @classmethod
    def of(cls, word: str) -> Server:
        name, url = word.split("=", 1)
        link = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
        link.connect()
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(name, link)

    def ask_ms(self, prompt: list[int]) -> float:
        sampling = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"input_ids": prompt, "sampling_params": sampling})
        begun_s = time.perf_counter()
        self.link.request("POST", "/generate", body, {"Content-Type": "application/json"})
        answer = self.link.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{self.name}: {answer.status} {text[:200]!r}")
        return 1e3 * (time.perf_counter() - begun_s)

    def questions_ms(self, prefix: int, new: int, count: int) -> list[float]:
        document = tokens(prefix)
        if document:
            self.ask_ms(document)
        return [self.ask_ms(document + tokens(new)) for _ in range(count)]


def tokens(count: int) -> list[int]:
    return [DICE.randrange(1_000, 100_000) for _ in range(count)]


def main(words: list[str]) -> None:
    servers = [Server.of(word) for word in words]
    for turn in range(-1, TURNS):  # the first is thrown away: it compiles
        for server in servers:
            found_ms = {
                "4096+128": server.questions_ms(4096, 128, QUESTIONS),
                "3000": server.questions_ms(0, 3000, QUESTIONS),
                "24000+160": server.questions_ms(24000, 160, LONG_QUESTIONS),
            }
            if turn >= 0:
                print(json.dumps({"server": server.name, "ms": found_ms}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

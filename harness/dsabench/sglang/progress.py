"""What a booting server is doing, in a few words, from the end of its log."""

from __future__ import annotations

import re
from collections.abc import Callable

Words = Callable[[re.Match[str]], str]

_STEPS: tuple[tuple[re.Pattern[str], Words], ...] = (
    (re.compile(r"fired up and ready to roll"), lambda _: "ready"),
    (
        re.compile(r"Capturing batches \(?(?:bs=(\d+))?[^|]*\|[^|]*\|\s*(\d+)/(\d+)"),
        lambda m: f"capturing CUDA graphs {m[2]} of {m[3]}",
    ),
    (
        re.compile(r"Capture (.*?)\s*(?:cuda )?graph end.*?([\d.]+) s", re.IGNORECASE),
        lambda m: f"graphs after {m[2]} s",
    ),
    (re.compile(r"Capture (.*?)\s*(?:cuda )?graph begin", re.IGNORECASE), lambda _: "capturing CUDA graphs"),
    (
        re.compile(r"(?:DeepGEMM warmup|DeepGEMM.*?)[^|]*\|[^|]*\|\s*(\d+)/(\d+)"),
        lambda m: f"compiling DeepGEMM kernels {m[1]} of {m[2]}",
    ),
    (
        re.compile(r"DeepGEMM JIT|Compiling|JIT compil|Loading JIT|\bninja\b", re.IGNORECASE),
        lambda _: "compiling kernels (JIT)",
    ),
    (
        re.compile(r"KV [Cc]ache (?:is )?allocated\..*?#tokens: (\d+).*?KV size: ([\d.]+) GB"),
        lambda m: f"KV cache allocated: {int(m[1]):,} tokens, {m[2]} GB",
    ),
    (re.compile(r"Memory pool end\. avail mem=([\d.]+) GB"), lambda m: f"memory pools made, {m[1]} GB left"),
    (
        re.compile(r"Load weight end\.(?: elapsed=([\d.]+) s)?.*?mem usage=([\d.]+) GB"),
        lambda m: f"weights loaded: {m[2]} GB" + (f" in {m[1]} s" if m[1] else ""),
    ),
    (
        re.compile(r"(?:shards|Loader|Streamer):\s+\d+%[^|]*\|[^|]*\|\s*(\d+)/(\d+)", re.IGNORECASE),
        lambda m: f"loading weights, shard {m[1]} of {m[2]}",
    ),
    (
        re.compile(r"(?:shards|Loader|Streamer):\s+\d+% Completed \| (\d+)/(\d+)", re.IGNORECASE),
        lambda m: f"loading weights, shard {m[1]} of {m[2]}",
    ),
    (re.compile(r"Load weight begin"), lambda _: "loading weights"),
    (re.compile(r"Init torch distributed"), lambda _: "joining the ranks"),
    (re.compile(r"server_args=|ServerArgs\("), lambda _: "reading the model's config"),
)
"""Pattern → words. In one line the first that matches counts."""


def say_progress(tail: str) -> str | None:
    """The latest step that the log's last lines name; None where they name none."""
    for line in reversed(tail.splitlines()):
        for pattern, words in _STEPS:
            if match := pattern.search(line):
                return words(match)
    return None

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.sglang.progress import say_progress

READY = (Path(__file__).parent / "logs" / "ready_h200_0.5.16.txt").read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[2026-11-21 21:30:16] Init torch distributed begin.", "joining the ranks"),
        ("[2026-11-21 21:30:19] Load weight begin. avail mem=139.09 GB", "loading weights"),
        (
            "Loading safetensors checkpoint shards:  99% Completed | 161/163 [01:15<00:00,  2.24it/s]",
            "loading weights, shard 161 of 163",
        ),
        ("Multi-thread loading shards:  50%|#####     | 4/8 [00:02<00:02]", "loading weights, shard 4 of 8"),
        (
            "[..] Load weight end. elapsed=0.31 s, type=X, quant=fp8, avail mem=123.69 GB, mem usage=15.40 GB.",
            "weights loaded: 15.40 GB in 0.31 s",
        ),
        (
            "[..] Load weight end. type=DeepseekV3ForCausalLM, avail mem=21.73 GB, mem usage=166.59 GB.",
            "weights loaded: 166.59 GB",
        ),
        (
            "[..] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 18171456, KV size: 106.69 GB",
            "KV cache allocated: 18,171,456 tokens, 106.69 GB",
        ),
        ("[..] Memory pool end. avail mem=16.99 GB", "memory pools made, 16.99 GB left"),
        ("[..] Capture target decode CUDA graph begin. backend=full, bs=[1, 2]", "capturing CUDA graphs"),
        (
            "Capturing batches (bs=24 avail_mem=16.14 GB):  25%|██▌       | 2/8 [02:23<05:54, 59.11s/it]",
            "capturing CUDA graphs 2 of 8",
        ),
        ("[..] Capture target decode CUDA graph end. elapsed=164.94 s, mem usage=0.12 GB", "graphs after 164.94 s"),
        ("DeepGEMM warmup:  20%|##        | 100/512 [00:10<00:40]", "compiling DeepGEMM kernels 100 of 512"),
        ("[..] Entering DeepGEMM JIT Pre-Compile session. It may take a long time", "compiling kernels (JIT)"),
        ("[..] The server is fired up and ready to roll!", "ready"),
    ],
)
def test_each_step_in_words(line: str, words: str) -> None:
    assert say_progress(f"something before\n{line}\nINFO: something that is no step") == words


def test_of_several_the_last_counts() -> None:
    assert say_progress(READY) == "ready"
    assert say_progress(READY.partition("Memory pool end")[0]) == "KV cache allocated: 18,171,456 tokens, 106.69 GB"


def test_a_log_without_a_step_says_nothing() -> None:
    assert say_progress("SyntaxWarning: invalid escape sequence\n") is None

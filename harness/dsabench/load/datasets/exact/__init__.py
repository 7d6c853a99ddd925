"""Draws exactly what sglang's bench_serving 0.5.23 draws for the same seed and flags (sglang/benchmark/datasets/)."""

"""What sglang's bench_serving 0.5.23 computes, prints and writes (sglang/benchmark/serving.py), to the digit.

`answers` brings the samples into columns → `figures` computes → `block` prints, `record` makes the JSONL line.
Imports no pydantic: a client's start counts in its own cost.
"""

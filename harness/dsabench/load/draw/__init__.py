"""Which prompts are sent: drawn for a workload, or exactly as bench_serving draws them."""

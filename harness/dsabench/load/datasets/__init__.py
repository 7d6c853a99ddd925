"""What is sent: `prompts` draws a workload, `exact` what bench_serving draws for a command line."""

"""When requests are due: `spacings` for a workload, `exact` as bench_serving draws gaps."""

"""The embedded runtime: a small but true DSA transformer behind sglang's HTTP interface.

Read in this order: `sizes` (the models), `layers`, `attention` and `paths` (the mathematics, whose operators are in
`dsakernels`), `transformer`, `weights`; `latent_cache` and `prefix_cache` (where tokens live); `request`, `batch`,
`scheduler`, `sampler`, `counters`, `engine` (continuous batching); `arguments`, `tables`, `settings` (what may be
set); `messages`, `exchange`, `worker`, `metrics`, `server`, `launch_server` (HTTP), `allocator` (malloc).
Its numbers describe itself, not sglang.
"""

"""The embedded runtime: a small but true DSA transformer behind sglang's HTTP interface.

Read in this order: `sizes` and `overrides` (the models), `layers`, `experts`, `attention` and `paths` (the
mathematics, whose operators are in `dsakernels`), `forward_pass`, `transformer`, `weights`; `latent_cache` and
`prefix_cache` (where tokens live); `request`, `batch`, `scheduler`, `sampler`, `counters`, `engine` (continuous
batching); `draft_head`, `draft_weights`, `speculation`, `verification` (MTP); `arguments`, `tables`, `settings` (what
may be set); `messages`, `exchange`, `worker`, `metrics`, `server`, `launch_server` (HTTP), `allocator` (malloc).
Its numbers describe itself, not sglang.
"""

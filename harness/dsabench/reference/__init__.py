"""The embedded runtime: a small but true DSA transformer behind sglang's HTTP interface.

Read in this order: `sizes` (the models), `layers`, `attention` and `paths` (the mathematics, whose operators are in
`dsakernels`), `weights`, `transformer`; `latent_cache`, `pages` and `prefix_cache` (where tokens live); `request`,
`scheduler`, `batch`, `sampler`, `engine` (continuous batching); `arguments`, `settings`, `tables` (what may be set);
`messages`, `server`, `launch_server` (HTTP). Its numbers describe itself, not sglang.
"""

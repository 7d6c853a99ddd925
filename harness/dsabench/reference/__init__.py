"""A small but true DSA transformer and the engine that serves it; `dsabench.serving` makes a program of it.

Read in this order: `sizes` (the models), `layers`, `experts`, `attention`, `paths` and `operators` (the mathematics, whose
kernels are in `dsakernels`), `batch`, `transformer`, `weights`; `latent_cache` and `prefix_cache` (where tokens live),
`hot_buffer` (HiSparse); `request`, `settings`, `scheduler`, `sampler`, `counters`, `engine` (continuous batching);
`draft_head`, `speculation`, `verification` (MTP); `seat`, `sharding`, `ranks` (several processes). Its numbers describe
itself, not sglang.
"""

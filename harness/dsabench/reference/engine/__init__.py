"""The model and the engine that serves it: DeepSeek Sparse Attention, to be read from top to bottom.

The model: `sizes`, `layers` (what DSA leaves as it is), `kv_cache` (what is remembered of a token), `batch` (one forward pass),
`indexer`, `sparse_attention`, `mla`, `transformer`, `weights`. Its kernels are in `dsakernels`.
Several processes: `layout` (who has what), `ranks` (the sums between them), `sharding` (their parts of the weights).
Serving: `request`, `settings`, `counters`, `scheduler` (continuous batching), `sampler`, `mtp` (drafts), `hot_buffer` (HiSparse),
`engine`.
"""

"""The model and the engine that serves it.

Read in this order: `sizes` (the models), `layers`, `experts`, `attention`, `paths` and `operators` (the mathematics, whose
kernels are in `dsakernels`), `batch`, `transformer`, `weights` and `checkpoint`; `latent_cache` and `prefix_cache` (where
tokens live), `hot_buffer` (HiSparse); `tokenizer`, `request`, `settings`, `scheduler`, `sampler`, `counters`, `engine`
(continuous batching); `draft_head`, `speculation`, `verification` (MTP); `seat`, `sharding`, `ranks` (several processes).
"""

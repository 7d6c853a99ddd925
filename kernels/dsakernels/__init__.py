"""The operators of DeepSeek Sparse Attention (DSA), one module each, in plain PyTorch.

Letters in shapes: T query tokens, L cached tokens of one sequence, N cached tokens of a pool, B sequences, H attention
heads, I indexer heads, K tokens that the indexer selects per query (`index_topk`), C width of the latent
(`kv_lora_rank`), R width of the rotary part (`qk_rope_head_dim`), D = C + R.
"""

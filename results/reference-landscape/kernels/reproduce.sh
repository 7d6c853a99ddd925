#!/usr/bin/env bash
# The kernel times of the reference runtime's model `small`, 40 seconds on two cores. Usage: reproduce.sh FOLDER
set -euo pipefail
shapes=""
for new in 64 192 256 512 1024; do
  for kv in "$new" 1024 2048; do if [ "$kv" -ge "$new" ]; then shapes="$shapes,refsmall-h8-b1-q$new-kv$kv"; fi; done
done
for batch in 1 2 4 8 16; do for kv in 256 1024; do shapes="$shapes,refsmall-h8-b$batch-q1-kv$kv"; done; done
dsabench kernels bench sparse_prefill sparse_decode dense_prefill kv_expand absorb indexer_ragged topk_select \
  --candidates 'torch_flashmla_*,torch_mha,torch_mm,torch_bmm,torch_by_head,torch_select' --shapes "${shapes#,}" \
  --threads 2 --device cpu --spread 0.1 --results "$1"

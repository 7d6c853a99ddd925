#!/bin/sh
# All timings of this folder, in order; run again it goes on where it stopped. About 4 minutes on an H200.
# The A/A pairs of twice.jsonl were measured by a command that later versions do not have.
#   sh results/h200/kernels/reproduce.sh PYTHON [FOLDER]     PYTHON has sglang and its kernels; FOLDER: results/h200-again/kernels
set -eu
python=${1:?the interpreter that has the kernels}
folder=${2:-results/h200-again/kernels}
kernels() { action=$1; shift; ${DSABENCH:-dsabench} kernels "$action" "$@" --kernel-python "$python" --device cuda --results "$folder"; }

kernels bench sparse_prefill --shapes study --dtypes fp8 --candidates flashmla_sparse_dequantise,flashmla_kv
kernels bench dense_prefill absorb kv_expand indexer_ragged topk_select --shapes study \
    --candidates fa3_varlen,torch_mm,torch_bmm,deep_gemm,sgl_kernel
kernels bench sparse_decode mtp_verify --shapes grid --candidates flashmla_sparse,flashmla_kv,fa3,triton

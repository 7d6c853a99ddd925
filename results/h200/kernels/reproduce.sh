#!/bin/sh
# All measurements of this folder, in order; run again it goes on where it stopped, but for the pairs of `twice`, which are
# measured anew and written behind those that are there. About 5 minutes on an H200.
#   sh results/h200/kernels/reproduce.sh PYTHON [FOLDER]     PYTHON has sglang and its kernels; FOLDER: results/h200-again/kernels
set -eu
python=${1:?the interpreter that has the kernels}
folder=${2:-results/h200-again/kernels}
kernels() { action=$1; shift; ${DSABENCH:-dsabench} kernels "$action" "$@" --kernel-python "$python" --device cuda --results "$folder"; }

kernels bench sparse_prefill --shapes study --dtypes fp8 --candidates flashmla_sparse_dequantise,flashmla_kv
kernels bench dense_prefill absorb kv_expand indexer_ragged topk_select --shapes study \
    --candidates fa3_varlen,torch_mm,torch_bmm,deep_gemm,sgl_kernel
kernels bench sparse_decode mtp_verify --shapes grid --candidates flashmla_sparse,flashmla_kv,fa3,triton
kernels twice sparse_prefill sparse_decode dense_prefill --candidates 'flashmla*,fa3*' \
    --shapes 'v3.2-h128-b1-q*-kv[1-8]???,v3.2-h128-b*-q1-kv8192,glm5-h64-b*-q1-kv*'

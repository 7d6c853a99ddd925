"""Kernel timing. One process conducts and writes; a worker under the interpreter that has the kernels measures.

The worker (`worker`, `answer`, `selection`, `correctness`, `timers`, `measure`) needs only torch and this source tree, no package of dsabench's.
"""

"""Portable kernels of our own, in Triton. Importing a module here but `blocking` needs Triton; `candidates.triton_ours` does it late."""

"""Portable kernels of our own, in Triton. Importing a module here needs Triton; `candidates.triton_ours` does it late."""

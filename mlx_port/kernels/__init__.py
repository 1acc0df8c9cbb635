"""Kernels of our own, in CUDA and in Metal. The CUDA source ran on two GPUs; the Metal source has not run."""

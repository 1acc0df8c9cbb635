"""Captured steps and their Triton kernels, for NVIDIA GPUs."""

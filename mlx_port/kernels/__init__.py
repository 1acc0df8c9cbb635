"""Kernels of our own, in CUDA and in Metal. The CUDA texts ran on an H200; the Metal ones were not run."""

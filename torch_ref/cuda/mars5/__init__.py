"""MARS5 on captured graphs and Triton kernels."""

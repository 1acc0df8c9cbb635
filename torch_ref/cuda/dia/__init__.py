"""Dia captured, on kernels."""

"""Dia2 captured, on kernels."""

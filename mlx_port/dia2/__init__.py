"""Dia2 in MLX."""

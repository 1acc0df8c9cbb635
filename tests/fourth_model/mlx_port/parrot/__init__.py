"""Parrot in MLX."""

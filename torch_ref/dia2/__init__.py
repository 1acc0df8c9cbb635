"""Dia2 in PyTorch."""

"""Parrot in PyTorch."""

"""Layers that more than one network uses."""

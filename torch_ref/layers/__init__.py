"""Layers used by more than one network."""

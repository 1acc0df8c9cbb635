"""Arithmetic of layers that needs no framework."""

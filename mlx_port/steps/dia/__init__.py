"""Dia's step."""

"""Dia2's step."""

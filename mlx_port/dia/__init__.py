"""Dia: text to dialogue."""

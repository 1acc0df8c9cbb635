"""Dia2, without a framework."""

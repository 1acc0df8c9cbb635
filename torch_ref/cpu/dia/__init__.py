"""Dia on CPUs."""

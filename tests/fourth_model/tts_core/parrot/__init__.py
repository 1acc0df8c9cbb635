"""Parrot: nothing in here knows a framework."""

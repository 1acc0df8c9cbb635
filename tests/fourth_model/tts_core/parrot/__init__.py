"""Parrot, without a framework."""

"""MARS5's step."""

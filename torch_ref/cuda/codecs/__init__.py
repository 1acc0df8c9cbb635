"""Codecs captured."""

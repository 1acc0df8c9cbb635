"""Codecs and vocoders: configurations, shapes and windows."""

"""Dia without its network: configuration, text, requests, pipeline."""

"""MARS5 without its networks: configuration, text, requests, pipeline."""

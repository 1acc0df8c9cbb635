"""Qwen3-TTS's step, built once."""

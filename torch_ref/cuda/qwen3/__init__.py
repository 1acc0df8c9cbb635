"""Qwen3-TTS captured, on kernels."""

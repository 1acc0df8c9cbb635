"""Qwen3-TTS: speech in ten languages from text, by a transformer over frames of codes."""

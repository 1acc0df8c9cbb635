"""MetaVoice captured, on kernels."""

"""Judges of speech that work offline: words, naturalness, likeness to a voice, silence. NumPy and ONNX."""

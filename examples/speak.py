"""Speak a text with the embedded voice into a file.

python examples/speak.py "Hello." hello.wav
"""

import sys

import mlx_port

text, path = sys.argv[1:]
result = mlx_port.generate(text, seed=1)
result.save(path)
print(f"{path}: {result.audio_seconds:.2f} s of speech")

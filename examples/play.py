"""Play a text while it is spoken. Needs the extra `play`.

python examples/play.py "Hello. How are you?"
"""

import sys
from itertools import chain

import sounddevice  # pyright: ignore[reportMissingImports]

import mlx_port

parts = iter(mlx_port.stream(sys.argv[1], seed=1))
first = next(parts)
with sounddevice.OutputStream(samplerate=first.sample_rate, channels=1, dtype="float32") as player:
    for part in chain([first], parts):
        player.write(part.audio[:, None])

"""Speak a text with the MLX port in one call."""

from __future__ import annotations

from functools import lru_cache

from mlx_port.dia.pipeline import DiaPipeline
from mlx_port.loading import assemble, open_parts
from mlx_port.stored_voice import converted_voice
from tts_core.doors import Doors


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """Load the voice included in the package, once; the first use converts it into the user's cache."""
    return DiaPipeline.load(converted_voice())


_DOORS = Doors(open_parts, assemble, embedded_voice)
generate, stream = _DOORS.generate, _DOORS.stream

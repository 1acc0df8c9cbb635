"""Speak a text with the PyTorch reference in one call."""

from __future__ import annotations

from functools import lru_cache

from torch_ref.dia.pipeline import DiaPipeline
from torch_ref.loading import assemble, open_parts
from tts_core.doors import Doors
from tts_core.voice.embedded import CODEC, DIA


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """Load the voice included in the package, once; in float32: a seed gives the same speech everywhere."""
    return DiaPipeline.load(DIA, codec=CODEC, dtype="float32")


_DOORS = Doors(open_parts, assemble, embedded_voice)
generate, stream = _DOORS.generate, _DOORS.stream

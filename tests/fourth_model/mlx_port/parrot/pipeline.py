"""Parrot's parts as a pipeline."""

from __future__ import annotations

from mlx_port.codecs.dac import Dac
from mlx_port.loading import Parts
from mlx_port.parrot.engine import ParrotEngine
from mlx_port.parrot.parrot import Parrot
from tts_core.parrot.pipeline import ParrotPipeline


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    return ParrotPipeline(ParrotEngine(parts.network("parrot", Parrot), parts.network("dac", Dac), words))

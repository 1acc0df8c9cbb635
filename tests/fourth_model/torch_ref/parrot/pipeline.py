"""Parrot's parts as a pipeline."""

from __future__ import annotations

from torch_ref.loading import Parts
from torch_ref.parrot.engine import ParrotEngine
from tts_core.parrot.pipeline import ParrotPipeline


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    return ParrotPipeline(ParrotEngine(parts.network("parrot"), parts.network("dac"), words))

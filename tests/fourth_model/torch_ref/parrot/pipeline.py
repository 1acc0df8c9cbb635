"""Parrot's parts as a pipeline."""

from __future__ import annotations

from torch_ref.codecs.dac import Dac
from torch_ref.loading import Parts
from torch_ref.parrot.engine import ParrotEngine
from torch_ref.parrot.parrot import Parrot
from tts_core.parrot.pipeline import ParrotPipeline


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    return ParrotPipeline(ParrotEngine(parts.network("parrot", Parrot), parts.network("dac", Dac), words))

"""Parrot's pipeline: words in, codes and speech out, a part per word."""

from __future__ import annotations

from tts_core.parrot.model import MODEL
from tts_core.speaking.pipeline import Pipeline


class ParrotPipeline(Pipeline):
    """A Parrot of either side."""

    model = MODEL

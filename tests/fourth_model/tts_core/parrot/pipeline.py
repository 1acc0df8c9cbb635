"""Parrot's pipeline: words in, codes and speech out, a part per word."""

from __future__ import annotations

from tts_core.parrot.net import ParrotNet
from tts_core.parrot.options import ParrotOptions
from tts_core.parrot.speech import speak
from tts_core.speaking.pipeline import SpeechPipeline


class ParrotPipeline(SpeechPipeline[ParrotNet]):
    """A Parrot of either side."""

    name, options, speech = "parrot", ParrotOptions, staticmethod(speak)

"""MARS5's parts as a pipeline."""

from __future__ import annotations

from mlx_port.loading import Parts
from mlx_port.mars5.generate import Mars5Pipeline
from tts_core.mars5_tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary


def assemble(parts: Parts) -> Mars5Pipeline:
    """The pipeline."""
    texts = parts.documents["mars5"]
    vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE])
    kinds = "mars5", "mars5_nar", "encodec", "vocos"
    network, transformer, codec, vocoder = (parts.network(kind) for kind in kinds)
    return Mars5Pipeline(network, transformer, codec, vocoder, vocabulary)

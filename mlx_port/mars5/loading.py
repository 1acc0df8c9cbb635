"""MARS5's parts as a pipeline."""

from __future__ import annotations

from mlx_port.loading import Parts, understood
from mlx_port.mars5.generate import Mars5Pipeline
from mlx_port.memory import backend_name, free_bytes
from tts_core.mars5_room import check_loading
from tts_core.mars5_tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary


def assemble(parts: Parts) -> Mars5Pipeline:
    """The pipeline. Raises ResourceError, before weights are read, where memory would not hold it."""

    def check(_: object) -> None:
        check_loading(
            parts.configs,
            dtype=parts.dtype_of("mars5"),
            backend=backend_name(),
            free=free_bytes(),
            quantization=parts.quantization_of("mars5"),
        )

    understood(check, {}, parts.folder)
    texts = parts.documents["mars5"]
    vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE])
    kinds = "mars5", "mars5_nar", "encodec", "vocos"
    network, transformer, codec, vocoder = (parts.network(kind) for kind in kinds)
    return Mars5Pipeline(network, transformer, codec, vocoder, vocabulary)

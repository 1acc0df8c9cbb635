"""Qwen3-TTS's engine: the talker's running batch, the speaker encoder and the codec of either side.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.nn.host import Device
from tts_core.qwen3.rows import Qwen3Joining, Qwen3Slots


class Qwen3Engine:
    """Qwen3-TTS's networks with the texts of its tokenizer, and caches of recordings.

    documents: the model's own, by name.
    network: the talker, and the speaker encoder of a model that has one.
    make_slots, fault: `qwen3/slots.py`.
    decode_piece: as the codec's, where a side has a faster form.
    """

    def __init__(
        self,
        documents: Mapping[str, str],
        network: Any,
        codec: Any,
        host: Device,
        *,
        make_slots: Callable[..., Qwen3Slots],
        fault: Callable[..., GenerationError],
        decode_piece: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.documents, self.network, self.codec, self.host = documents, network, codec, host
        self.configs: Configs = {"qwen3": network.config, "qwen3_codec": codec.config}
        self._make_slots, self._fault = make_slots, fault
        self._decode_piece = decode_piece or self._by_codec
        self._codes, self._vectors = VoiceCache(), VoiceCache()

    def _by_codec(self, codes: Any, memory: Any) -> tuple[Any, Any]:
        return self.codec.decode_piece(codes, memory)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def slots(self, texts: int, room: int) -> Qwen3Slots:
        """Open a running batch for as many texts, each of at most `room` positions."""
        return self._make_slots(self.network, texts=texts, room=room)

    def fault(self, text: Qwen3Joining, frames: np.ndarray) -> GenerationError:
        """Build the error that names the first layer with NaN or infinity, by running a text again.

        frames: drawn before the logits that are not finite, (Q, T).
        """
        return self._fault(self.network, text, frames)

    def vector(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the speaker encoder's rate, as the voice's vector (D,)."""
        embed = self.network.speaker_encoder.embed
        return self._vectors.encoded([samples], lambda _: apart(self.host, partial(embed, samples))).copy()

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the codec's rate, as codes (Q, F) int32."""

        def encode() -> np.ndarray:
            return self.host.to_host(self.codec.encode(samples[None]))[0]

        return self._codes.encoded([samples], lambda _: apart(self.host, encode)).copy()

    def launch(self, pieces: Sequence[np.ndarray], memory: Any) -> tuple[Pending[np.ndarray], Any]:
        """Begin to decode the next frames of a stream, beside the steps where the host `overlaps`.

        pieces: (Q, F) int32 each, that follow each other.
        memory: of the frames before; None at the start.
        Returns the samples of the last piece, (L,) float32, and the memory for the next launch.
        """
        kept = memory

        def work() -> list[Any]:
            nonlocal kept
            samples: Any = None
            for codes in pieces:
                samples, kept = self._decode_piece(self.host.to_device(codes[None]), kept)
            return [samples]

        return Then(self.host.launch(work), _only), kept

    def launch_whole(self, codes: np.ndarray) -> Pending[np.ndarray]:
        """Begin to decode frames in the original's pieces of 300, beside the steps where the host `overlaps`.

        (Q, F) int32, F > 0 → samples (L,) float32.
        """
        return Then(self.host.launch(lambda: [self.codec.decode(codes[None])]), _only)


def _only(made: list[np.ndarray]) -> np.ndarray:
    return made[0][0].copy()  # of memory that the next copies use again

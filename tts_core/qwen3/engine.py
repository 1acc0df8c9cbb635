"""Qwen3-TTS's engine: the talker's running batch, the speaker encoder and the codec of either side.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.qwen3.rows import Qwen3Joining, Qwen3Slots
from tts_core.speech.fed_session import FedEngine, only


class Qwen3Engine(FedEngine):
    """Qwen3-TTS's networks and their codec.

    network: the talker, and the speaker encoder of a model that has one.
    make_slots, fault: `qwen3/slots.py`.
    """

    kinds = "qwen3", "qwen3_codec"

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

    def _codes_of(self, samples: np.ndarray) -> Any:
        return self.codec.encode(samples)

    def launch_whole(self, codes: np.ndarray) -> Pending[np.ndarray]:
        """Begin to decode frames in the original's pieces of 300, beside the steps where the host `overlaps`.

        (Q, F) int32, F > 0 → samples (L,) float32.
        """
        return Then(self.host.launch(lambda: [self.codec.decode(codes[None])]), only)

"""Speaker encoder: an LSTM that turns slices of speech into one vector of unit length.

Paper: Wan et al. 2017, "Generalized end-to-end loss for speaker verification", arXiv 1710.10467. Upstream:
metavoiceio/metavoice-src (Apache-2.0) fam/quantiser/audio/speaker_encoder, July 2024; the mel front end is
tts_core/audio/speaker_slices.py. Differs from upstream: embeddings are cached by the audio's content, not
by its path (tts_core/audio/voice_cache.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.layers.lstm import LSTM
from tts_core.audio.speaker_slices import utterance_slices
from tts_core.errors import UsageError
from tts_core.metavoice.config import SpeakerEncoderConfig

SLICES_AT_ONCE = 64  # limits the memory; a minute and a half of speech


class SpeakerEncoder(nn.Module):
    """LSTM and projection of mel slices to unit vectors. (P, T, n_mels) → (P, E), all numbers ≥ 0."""

    def __init__(self, config: SpeakerEncoderConfig):
        super().__init__()
        self.config = config
        self.lstm = LSTM(config.n_mels, config.hidden_size, config.num_hidden_layers)
        self.linear = nn.Linear(config.hidden_size, config.speaker_embedding_size)

    def __call__(self, slices: mx.array) -> mx.array:
        hidden = self.lstm(slices)[1][0]
        return self.vectors(hidden[-1])

    def vectors(self, state: mx.array) -> mx.array:
        """Project the last layer's states to unit vectors. (P, D) → (P, E)."""
        return unit(nn.relu(self.linear(state)))

    def embed(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode one voice as the mean vector of one or more recordings of it.

        utterances: (L,) samples at 16 kHz each, without silence at the ends.
        Returns (E,). Raises UsageError if there is no recording or no voice in it.
        """
        if not utterances:
            raise UsageError("speaker: no recording was given")
        voice = unit(mx.stack([self._utterance(samples) for samples in utterances]).mean(axis=0))
        found = np.array(voice)
        if not np.isfinite(found).all():
            raise UsageError("speaker: the reference has no recognizable voice; give a clear recording")
        return found

    def _utterance(self, samples: np.ndarray) -> mx.array:
        """Encode one recording. (L,) → (E,)."""
        slices = utterance_slices(samples, self.config.n_mels)
        starts = range(0, len(slices), SLICES_AT_ONCE)
        parts = [self(mx.array(slices[start : start + SLICES_AT_ONCE])) for start in starts]
        mx.eval(parts)
        return unit(mx.concatenate(parts).mean(axis=0))


def unit(x: mx.array) -> mx.array:
    """Compute x / |x| over the last axis."""
    return x / mx.linalg.norm(x, axis=-1, keepdims=True)

"""Speaker encoder: an LSTM that turns slices of speech into one vector of unit length.

Paper: Wan et al. 2017, "Generalized end-to-end loss for speaker verification", arXiv 1710.10467. Upstream:
metavoiceio/metavoice-src (Apache-2.0) fam/quantiser/audio/speaker_encoder, July 2024; the mel front end is
tts_core/audio/speaker_slices.py. Differs from upstream: embeddings are cached by the audio's content, not
by its path (tts_core/audio/voice_cache.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.layers.lstm import LSTM
from torch_ref.limits.precision import exactly
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

    def forward(self, slices: Tensor) -> Tensor:
        hidden = self.lstm(slices)[1][0]
        return self.vectors(hidden[-1])

    def vectors(self, state: Tensor) -> Tensor:
        """Project the last layer's states to unit vectors. (P, D) → (P, E)."""
        return unit(self.linear(state).relu())

    @exactly
    @torch.inference_mode()
    def embed(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode one voice as the mean vector of one or more recordings of it.

        utterances: (L,) samples at 16 kHz each, without silence at the ends.
        Returns (E,). Raises UsageError if there is no recording or no voice in it.
        """
        if not utterances:
            raise UsageError("speaker: no recording was given")
        voice = unit(torch.stack([self._utterance(samples) for samples in utterances]).mean(dim=0))
        found = voice.cpu().numpy()
        if not np.isfinite(found).all():
            raise UsageError("speaker: the reference has no recognizable voice; give a clear recording")
        return found

    def _utterance(self, samples: np.ndarray) -> Tensor:
        """Encode one recording. (L,) → (E,)."""
        weight = self.linear.weight
        slices = torch.as_tensor(utterance_slices(samples, self.config.n_mels)).to(weight)
        parts = [self(part) for part in slices.split(SLICES_AT_ONCE)]
        return unit(torch.cat(parts).mean(dim=0))


def unit(x: Tensor) -> Tensor:
    """Compute x / |x| over the last axis."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)

"""The rows of guidance that the first stage computes for a text."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.metavoice.first_stage import FirstStage
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import FirstStageSampling


def stacked(tokens: mx.array, sampling: FirstStageSampling, end_of_text: int) -> mx.array:
    """Stack the rows of guidance: full, without speaker, without text, as needed. (B, T) → (G·B, T).

    end_of_text: the id that replaces text in rows without it.
    """
    if sampling.rows < 3:
        return mx.tile(tokens, (sampling.rows, 1))
    return mx.concatenate([tokens, tokens, mx.where(tokens > END_OF_AUDIO, end_of_text, tokens)])


def speaker_rows(network: FirstStage, embeddings: mx.array, sampling: FirstStageSampling) -> mx.array:
    """Project the speakers of `stacked` rows; rows without a speaker have zeros. (B, E) → (G·B, 1, D)."""
    speakers = network.speakers(embeddings)
    return mx.concatenate([speakers, mx.zeros_like(speakers), speakers][: sampling.rows])

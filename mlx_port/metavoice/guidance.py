"""The rows of guidance that the first stage computes for a text."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.metavoice.first_stage import FirstStage
from tts_core.errors import GenerationError
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.nn.guard import NotFiniteError


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


def fault(
    network: FirstStage, ids: np.ndarray, vector: np.ndarray, sampling: FirstStageSampling, end_of_text: int
) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    ids: text and codes before the logits that are not finite, (N,) int32.  vector: (E,).
    """
    host = Host(network.transformer.wpe)
    tokens = stacked(host.to_device(ids[None]), sampling, end_of_text)
    speakers = speaker_rows(network, host.to_device(vector[None]), sampling)
    with watched(network) as found:
        network.next_logits(tokens, speakers, network.new_cache(len(ids)))
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=len(ids))

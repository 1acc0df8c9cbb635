"""The rows of guidance that the first stage computes for a text."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ref.guard import watched
from torch_ref.host import Host
from torch_ref.metavoice.first_stage import FirstStage
from tts_core.errors import GenerationError
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.nn.guard import NotFiniteError


def stacked(tokens: Tensor, sampling: FirstStageSampling, end_of_text: int) -> Tensor:
    """Stack the rows of guidance: full, without speaker, without text, as needed. (B, T) → (G·B, T).

    end_of_text: the id that replaces text in rows without it.
    """
    if sampling.rows < 3:
        return tokens.repeat(sampling.rows, 1)
    return torch.cat([tokens, tokens, torch.where(tokens > END_OF_AUDIO, end_of_text, tokens)])


def speaker_rows(network: FirstStage, embeddings: Tensor, sampling: FirstStageSampling) -> Tensor:
    """Project the speakers of `stacked` rows; rows without a speaker have zeros. (B, E) → (G·B, 1, D)."""
    speakers = network.speakers(embeddings)
    return torch.cat([speakers, torch.zeros_like(speakers), speakers][: sampling.rows])


@torch.inference_mode()
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

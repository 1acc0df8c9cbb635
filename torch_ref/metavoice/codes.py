"""From the first stage's two codebooks to all of them: one pass of the second stage, and sampling.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), fam/llm/mixins/non_causal.py.
Differs from upstream: codes are read by position. Upstream reads them by value, so that one misplaced id
shifts its whole book.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ref.device import to_device
from torch_ref.host import Host
from torch_ref.limits.remedies import first_largest
from torch_ref.metavoice.second_stage import SecondStage
from torch_ref.sampling import draw_rows
from tts_core.metavoice.config import CODEBOOK_SIZE
from tts_core.metavoice.inputs import (
    SAMPLER,
    SECOND_STAGE_STEP,
    FirstStageSampling,
    by_position,
    second_stage_rows,
)
from tts_core.nn.noise import Noise

TEMPERATURE, TOP_K = 1.0, 200  # as in upstream, which ignores its user's values here


def fill_codebooks(
    network: SecondStage,
    text: np.ndarray,
    codes: np.ndarray,
    embedding: np.ndarray,
    noise: Noise,
    *,
    temperature: float = TEMPERATURE,
    top_k: int | None = TOP_K,
) -> np.ndarray:
    """Predict all codebooks of the frames that fit after the text.

    text: (S,) ids with the second stage's offset, end of text last.
    codes: (2, F).
    embedding: (E,) float32.
    → (Q, F) int32. Padding, if drawn, is replaced by the most probable code.
    """
    rows = second_stage_rows(text, codes, network.config.max_position_embeddings)
    columns = slice(len(text), min(len(text) + codes.shape[1], rows.shape[1]))
    logits = predict(network, rows, embedding)[:, columns]
    ids = draw(logits, noise, temperature=temperature, top_k=top_k)
    ids = torch.where(ids < CODEBOOK_SIZE, ids, first_largest(logits[..., :CODEBOOK_SIZE]))
    return np.concatenate([by_position(rows, len(text), codes.shape[1]), _read(network, ids)])


@torch.inference_mode()
def predict(network: SecondStage, rows: np.ndarray, embedding: np.ndarray | None) -> Tensor:
    """Compute logits of the other codebooks for one item. (2, W), (E,) → (Q - 2, W, V) float32."""
    host = Host(network.transformer.wpe)
    speakers = None if embedding is None else host.to_device(embedding[None])
    return network(host.to_device(rows[None]), speakers)[0]


@torch.inference_mode()
def draw(logits: Tensor, noise: Noise, *, temperature: float, top_k: int | None) -> Tensor:
    """Draw one id for each row of logits (..., V), independently. → (...)."""
    sampling = FirstStageSampling(1.0, 1.0, temperature, None, top_k, rule="slow")
    table = SAMPLER.named(to_device(SAMPLER.table([sampling.numbers]), logits.device), logits.ndim)
    uniform = None
    if not sampling.greedy:
        numbers = noise.uniform(SECOND_STAGE_STEP, tuple(logits.shape))
        uniform = to_device(numbers, logits.device)
    return draw_rows([logits], table, uniform, SAMPLER)


def _read(network: SecondStage, ids: Tensor) -> np.ndarray:
    """Wait for the device and read; nothing else waits."""
    return Host(network.transformer.wpe).to_host(ids).astype(np.int32)

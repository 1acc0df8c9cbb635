"""From the first stage's two codebooks to all of them: one pass of the second stage, and sampling.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), fam/llm/mixins/non_causal.py.
Differs from upstream: codes are read by position. Upstream reads them by value, so that one misplaced id
shifts its whole book.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.host import Host
from mlx_port.metavoice.second_stage import SecondStage
from mlx_port.sampling import draw_rows
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
    ids = mx.where(ids < CODEBOOK_SIZE, ids, mx.argmax(logits[..., :CODEBOOK_SIZE], axis=-1))
    return np.concatenate([by_position(rows, len(text), codes.shape[1]), _read(network, ids)])


def predict(network: SecondStage, rows: np.ndarray, embedding: np.ndarray | None) -> mx.array:
    """Compute logits of the other codebooks for one item. (2, W), (E,) → (Q - 2, W, V) float32."""
    host = Host(network.transformer.wpe)
    speakers = None if embedding is None else host.to_device(embedding[None])
    return network(host.to_device(rows[None]), speakers)[0]


def draw(logits: mx.array, noise: Noise, *, temperature: float, top_k: int | None) -> mx.array:
    """Draw one id for each row of logits (..., V), independently. → (...)."""
    sampling = FirstStageSampling(1.0, 1.0, temperature, None, top_k, rule="slow")
    table = SAMPLER.named(mx.array(SAMPLER.table([sampling.numbers])), logits.ndim)
    uniform = None
    if not sampling.greedy:
        uniform = mx.array(noise.uniform(SECOND_STAGE_STEP, tuple(logits.shape)))
    return draw_rows([logits], table, uniform, SAMPLER)


def _read(network: SecondStage, ids: mx.array) -> np.ndarray:
    """Wait for the device and read; nothing else waits."""
    return Host(network.transformer.wpe).to_host(ids).astype(np.int32)

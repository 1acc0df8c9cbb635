"""Dia's generation in its plainest form, to compare the pipelines with.

One text at a time, every row recomputed from the first in float64 PyTorch without a cache; the unconditional
branch is upstream's: zeros of the text's length through the encoder, read by a row of its own. The draws are
those of the NumPy definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sides import ORACLE, Side
from tests.tts_core.dia import sampling_rules as rules
from tts_core.dia.grid import DelayGrid
from tts_core.dia.options import DiaSampling
from tts_core.dia.text import tokenize
from tts_core.nn.noise import Noise


@dataclass(frozen=True)
class Plain:
    """codes: (C, T). margin: smallest lead of a drawn id over the next. rows: (T', C), the grid."""

    codes: np.ndarray
    margin: float
    finish_reason: str
    rows: np.ndarray


def two_row_source(side: Side, network: Any, tokens: np.ndarray) -> Any:
    """Cross-attention sources of a conditional and an unconditional row, neither collapsed."""
    ids = np.stack([tokens, np.zeros_like(tokens)])
    return network.model.decoder.source(network.model.encoder(side.array(ids)), None, None)


def generate(
    network: Any,
    text: str,
    noise: Noise,
    sampling: DiaSampling,
    max_frames: int,
    *,
    prompt: np.ndarray | None = None,
    last_channel_free: bool = False,
) -> Plain:
    """network: a Dia of the oracle's side. prompt: (C, P) codes."""
    config = network.config
    grid = DelayGrid(config, prompt, max_frames, last_channel_free=last_channel_free)
    source = two_row_source(ORACLE, network, tokenize(text))
    candidates = rules.candidates_v01 if config.cross_rope else rules.candidates_0626
    margin = np.inf
    while not grid.done:
        rows = np.repeat(grid.rows[None, : grid.filled], 2, axis=0)
        cond, uncond = ORACLE.numpy(network.next_logits(ORACLE.array(rows), network.new_cache(), source))
        scores = candidates(cond[None], uncond[None], sampling, config.eos_token_id)[0]
        if sampling.temperature > 0:
            uniform = noise.uniform(grid.step, scores.shape)
            scores = scores - np.log(-np.log(uniform.astype(np.float64)))
        second, best = np.sort(scores, axis=-1)[:, -2:].T
        free = grid.rows[grid.filled] == -1
        margin = min(margin, float((best - second)[free].min(initial=np.inf)))
        grid.accept(scores.argmax(axis=-1))
    return Plain(grid.codes(), margin, grid.finish_reason, grid.rows[: grid.filled])

"""Prompts and references of the small autoregressive network of MARS5."""

from __future__ import annotations

import numpy as np

from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.mars5.config import CodecLMConfig
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.tokens import CodecPrompt

__all__ = ["VOCABULARY", "deep_prompt", "reference", "sequence_of"]


def reference(frames: int, config: CodecLMConfig, seed: int = 0) -> np.ndarray:
    """(Q, P) codes; the first codebook repeats, so that some of its codes merge."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, config.codebook_rows - 1, (config.n_codebooks, frames))
    codes[0] %= 12
    return codes.astype(np.int32)


def deep_prompt(codes: np.ndarray) -> CodecPrompt:
    return VOCABULARY.deep("There in the inn.", "Then it thins.", codes[0])


def sequence_of(prompt: CodecPrompt, draws: int) -> CodecSequence:
    return CodecSequence(prompt, VOCABULARY, len(prompt.tokens) + draws)

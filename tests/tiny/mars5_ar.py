"""MARS5's autoregressive network of the real structure, small; random NumPy weights from a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.tiny.weights import Weights
from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.mars5.config import CodecLMConfig, codec_lm_parameter_shapes, is_norm
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.tokens import CodecPrompt

__all__ = ["VOCABULARY", "ar_config", "ar_weights", "deep_prompt", "reference", "sequence_of"]


def ar_config(**changes: Any) -> CodecLMConfig:
    """Nothing divides evenly: widths, heads of the two stacks, layers."""
    config = CodecLMConfig(
        vocab_size=VOCABULARY.size,
        hidden_size=48,
        intermediate_size=68,
        num_hidden_layers=3,
        num_attention_heads=3,
        norm_eps=1e-5,
        rope_theta=10000.0,
        sliding_window=3000,
        speaker_layers=2,
        speaker_heads=4,
        speaker_intermediate_size=52,
        speaker_norm_eps=4e-5,
        n_codebooks=4,
        codebook_rows=33,
    )
    return replace(config, **changes)


def ar_weights(config: CodecLMConfig, seed: int = 0) -> Weights[CodecLMConfig]:
    random, tensors = np.random.default_rng(seed), {}
    for name, shape in codec_lm_parameter_shapes(config).items():
        if is_norm(name) and name.endswith("weight"):
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif len(shape) == 1:
            tensors[name] = random.normal(0.7 if name.endswith("alpha") else 0, 0.2, shape)
        elif "emb" in name:
            tensors[name] = random.normal(0, 0.7, shape)
        else:
            tensors[name] = random.normal(0, shape[-1] ** -0.5, shape)
    tensors["ar.output.weight"] *= 2
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


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

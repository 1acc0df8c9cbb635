"""MARS5's residual transformer of the real structure, small enough to run hundreds of times; random weights.

Speaker heads differ from the others', layers of the three transformers from each other, and the classes are
no power of two and one.
"""

from functools import cache

import numpy as np

from tests.tiny.weights import Weights
from tts_core.mars5.config import ResidualTransformerConfig, is_norm, residual_transformer_parameter_shapes

TEXT = np.array([3, 17, 0, 30, 5, 5, 11], np.int32)


def config() -> ResidualTransformerConfig:
    return ResidualTransformerConfig(
        text_rows=31,
        n_classes=23,
        hidden_size=40,
        intermediate_size=56,
        encoder_layers=2,
        decoder_layers=3,
        num_attention_heads=4,
        timestep_size=18,
        speaker_layers=1,
        speaker_heads=5,
        speaker_intermediate_size=44,
        n_codebooks=5,
        n_output_codebooks=5,
        codebook_rows=23,
        norm_eps=4e-5,
        head_norm_eps=1e-5,
    )


@cache
def weights(seed: int = 0) -> Weights[ResidualTransformerConfig]:
    random, tensors = np.random.default_rng(seed), {}
    for name, shape in residual_transformer_parameter_shapes(config()).items():
        if is_norm(name) and name.endswith("weight"):
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif name.endswith(("bias", "alpha")):
            tensors[name] = random.normal(0.4, 0.3, shape)
        elif "emb" in name and "timestep" not in name:
            tensors[name] = random.normal(0, 0.6, shape)
        else:
            tensors[name] = random.normal(0, shape[-1] ** -0.5, shape)
    return Weights(config(), {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def codes(frames: int, seed: int = 0) -> np.ndarray:
    """(Q, frames)."""
    sizes = config()
    random = np.random.default_rng(seed)
    return random.integers(0, sizes.n_classes, (sizes.n_codebooks, frames)).astype(np.int32)

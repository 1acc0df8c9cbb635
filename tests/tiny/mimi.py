"""Mimi of the real structure, small; random NumPy weights from a seed."""

from __future__ import annotations

import numpy as np

from tests.tiny.weights import Weights
from tts_core.codecs import mimi
from tts_core.codecs.mimi import MimiConfig


def mimi_config() -> MimiConfig:
    """Nothing divides evenly: odd strides, two blocks a rate, grouped heads, a window of a few steps."""
    return MimiConfig(
        sample_rate=1500,
        hidden_size=14,
        num_filters=5,
        num_residual_layers=2,
        dilation_growth_rate=3,
        upsampling_ratios=(5, 2, 3),
        kernel_size=7,
        last_kernel_size=4,
        residual_kernel_size=3,
        compress=2,
        num_hidden_layers=2,
        intermediate_size=23,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        norm_eps=1e-5,
        rope_theta=10000.0,
        sliding_window=7,
        n_codebooks=5,
        n_semantic=1,
        codebook_size=40,
        codebook_dim=9,
    )


def mimi_weights(config: MimiConfig, seed: int = 0) -> Weights[MimiConfig]:
    random, tensors = np.random.default_rng(seed), {}
    transposed = tuple(f"decoder.layers.{at}." for at in mimi.transposed_layers(config))
    for name, shape in mimi.parameter_shapes(config).items():
        if name.endswith(".bias"):
            tensors[name] = random.normal(0, 0.1, shape)
        elif name.endswith(".scale") or "layernorm" in name:
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif name.endswith(".embed"):
            tensors[name] = random.normal(0, 0.7, shape)
        else:  # a transposed convolution: inputs are axis 0, and two taps reach an output
            two = name.startswith(transposed) or name.startswith("upsample")
            fan_in = 2 * (1 if name.startswith("upsample") else shape[0]) if two else np.prod(shape[1:])
            tensors[name] = random.normal(0, 1.4 * fan_in**-0.5, shape)
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})

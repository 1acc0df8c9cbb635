"""EnCodec and Vocos of the real structure, small; random NumPy weights from a seed."""

from __future__ import annotations

import numpy as np

from tests.tiny.weights import Weights
from tts_core.codecs import encodec, vocos
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.vocos import VocosConfig


def encodec_config() -> EncodecConfig:
    """Nothing divides evenly: odd strides, kernels of all sizes, an inner width that is rounded down."""
    return EncodecConfig(
        sample_rate=1000,
        hidden_size=11,
        num_filters=5,
        upsampling_ratios=(5, 2, 3),
        kernel_size=7,
        last_kernel_size=4,
        residual_kernel_size=3,
        compress=2,
        num_lstm_layers=2,
        n_codebooks=4,
        codebook_size=40,
    )


def vocos_config() -> VocosConfig:
    """Frames of three and a half hops; spectra wider than the network."""
    return VocosConfig(
        sample_rate=1000,
        n_codebooks=4,
        codebook_size=40,
        input_channels=11,
        dim=20,
        intermediate_dim=52,
        num_layers=3,
        num_bandwidths=3,
        n_fft=42,
        hop_length=12,
    )


def codebooks_at(config: EncodecConfig, kbps: float) -> int:
    return encodec.codebooks_at(kbps, config.sample_rate, config.hop_length, config.codebook_size)


def encodec_weights(config: EncodecConfig, seed: int = 0) -> Weights[EncodecConfig]:
    random, tensors = np.random.default_rng(seed), {}
    transposed = [f"decoder.layers.{at}." for at in encodec.transposed_layers(config)]
    for name, shape in encodec.parameter_shapes(config).items():
        if ".bias" in name:
            tensors[name] = random.normal(0, 0.1, shape)
        elif name.endswith(".embed"):
            tensors[name] = random.normal(0, 0.7, shape)
        else:  # a transposed convolution: inputs are axis 0, and two taps reach an output
            fan_in = 2 * shape[0] if name.startswith(tuple(transposed)) else np.prod(shape[1:])
            tensors[name] = random.normal(0, 1.4 * fan_in**-0.5, shape)
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def vocos_weights(config: VocosConfig, seed: int = 0) -> Weights[VocosConfig]:
    """Random weights whose magnitudes sometimes reach the limit."""
    random, tensors = np.random.default_rng(seed), {}
    for name, shape in vocos.parameter_shapes(config).items():
        if ".bias" in name or ".shift." in name:
            tensors[name] = random.normal(0, 0.1, shape)
        elif name.endswith("gamma") or ".scale." in name or "layer_norm" in name:
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif "codebook" in name:
            tensors[name] = random.normal(0, 0.7, shape)
        else:
            tensors[name] = random.normal(0, np.prod(shape[1:]) ** -0.5, shape)
    tensors["head.out.weight"] *= 2
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})

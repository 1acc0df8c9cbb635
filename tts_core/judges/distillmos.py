"""DistillMOS: the mean opinion score of speech, 1 to 5, from its compressed spectrum.

Paper: Stahl and Gamper 2025, "Distillation and pruning for scalable self-supervised representation-based
speech quality assessment", arXiv 2502.05356. Upstream: distillmos 0.9.1 and xls_r_sqa 0.1.0 (MIT). In NumPy;
the convolutions are matrix products. No known difference.
"""

from __future__ import annotations

import numpy as np

from tts_core.audio.mel import periodic_hann
from tts_core.judges.state_dict import read_state_dict

SAMPLE_RATE = 16_000  # Hz
SECTION = 122_880  # samples that the network takes
MOST_HOP = 16_000  # samples between sections of a longer recording
N_FFT, HOP_LENGTH = 320, 160
STRIDES = ((1, 1), (2, 1), (2, 1), (2, 1), (2, 1), (2, 2))  # of the convolutions: frequency, time
HEADS, LAYERS = 8, 7
EPS = 1e-5


class DistillMos:
    """The published network, variant 7. content: of its file."""

    def __init__(self, content: bytes):
        self.weights = read_state_dict(content, "model")

    def score(self, samples: np.ndarray) -> float:
        """Score (L,) float32 samples at 16 kHz: the mean over sections of 7.68 s, padded with zeros."""
        beyond = max(0, len(samples) - SECTION)
        padded = np.pad(samples, (0, max(0, SECTION - len(samples))))
        starts = np.linspace(0, 1, -(-beyond // MOST_HOP) + 1) * beyond
        return float(np.mean([self._section(padded[int(start) :][:SECTION]) for start in starts]))

    def _section(self, samples: np.ndarray) -> float:
        x = compressed_spectrum(samples / (np.abs(samples).max() + 1e-8))
        for index, stride in enumerate(STRIDES):
            name = f"cnn.cnn.{2 * index}"
            x = convolve(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], stride)
            x = np.where(x > 0, x, np.float32(0.1) * x)
        x = x.reshape(-1, x.shape[-1]).T  # (T, channels · frequencies)
        x = self._batch_norm("norm_input", x)
        x = self._batch_norm("transformer.norm", x)
        x = self._linear("transformer.linear_proj", x) + self._of("transformer.position_encoding.pe")[0]
        for layer in range(LAYERS):
            x = self._layer(f"transformer.transformer_encoder.layers.{layer}", x)
        x = self._batch_norm("norm_trans", x)
        attention = softmax(
            self._linear("pool.linear2", np.maximum(self._linear("pool.linear1", x), 0))[:, 0]
        )
        quality = self._linear("pool.linear3", attention @ x)[0]
        return 1 + 4 / (1 + np.exp(-float(quality)))

    def _layer(self, name: str, x: np.ndarray) -> np.ndarray:
        """Transformer layer with norms after the additions. (T, D) → same."""
        length, width = x.shape
        qkv = x @ self._of(f"{name}.self_attn.in_proj_weight").T + self._of(f"{name}.self_attn.in_proj_bias")
        q, k, v = qkv.reshape(length, 3, HEADS, width // HEADS).transpose(1, 2, 0, 3)  # (H, T, E) each
        weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(width // HEADS)))
        attended = (weights @ v).transpose(1, 0, 2).reshape(length, width)
        x = self._layer_norm(f"{name}.norm1", x + self._linear(f"{name}.self_attn.out_proj", attended))
        hidden = np.maximum(self._linear(f"{name}.linear1", x), 0)
        return self._layer_norm(f"{name}.norm2", x + self._linear(f"{name}.linear2", hidden))

    def _of(self, name: str) -> np.ndarray:
        return self.weights[f"transformer_pool_attn.{name}"]

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self._of(f"{name}.weight").T + self._of(f"{name}.bias")

    def _batch_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        scale = self._of(f"{name}.weight") / np.sqrt(self._of(f"{name}.running_var") + EPS)
        return (x - self._of(f"{name}.running_mean")) * scale + self._of(f"{name}.bias")

    def _layer_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + EPS)
        return centered / deviation * self._of(f"{name}.weight") + self._of(f"{name}.bias")


def compressed_spectrum(samples: np.ndarray) -> np.ndarray:
    """Compute the complex spectrum, magnitudes to the power of 0.3. (L,) → (2, 161, frames) float32."""
    padded = np.pad(samples, (N_FFT - HOP_LENGTH) // 2, mode="reflect").astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP_LENGTH]
    spectrum = np.fft.rfft(frames * periodic_hann(N_FFT), axis=1).T
    magnitude = np.maximum(np.abs(spectrum), 1e-12)
    return (np.stack([spectrum.real, spectrum.imag]) * magnitude**-0.7).astype(np.float32)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: tuple[int, int]) -> np.ndarray:
    """Convolve, padded by one at both ends of time only. (C, F, T), (O, C, 3, 3) → (O, F', T')."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(1, 2))
    windows = windows[:, :: stride[0], :: stride[1]]  # (C, F', T', 3, 3)
    frequencies, frames = windows.shape[1:3]
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(-1, frequencies * frames)
    return (weight.reshape(len(weight), -1) @ columns + bias[:, None]).reshape(-1, frequencies, frames)


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)

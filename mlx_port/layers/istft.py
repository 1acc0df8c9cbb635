"""Inverse short-time Fourier transform with real numbers only: two products and shifted sums.

The same arithmetic as torch_ref/layers/istft.py, channels last. Griffin and Lim, "Signal estimation from
modified short-time Fourier transform", 1984. Definitions: torch.istft for "center"; for "same"
gemelo-ai/vocos spectral_ops.py (MIT), rewritten. Differs from upstream: no known difference.
"""

from __future__ import annotations

from typing import Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from tts_core.audio.mel import inverse_basis, periodic_hann


class InverseSTFT(nn.Module):
    """Inverse transform of a one-sided spectrum to samples, without parameters.

    window: (n_fft,), periodic Hann if None. padding "center" gives hop_length (T - 1) samples, "same"
    hop_length T.
    Raises ValueError if windows leave gaps, or for "same" if n_fft - hop_length is odd.
    """

    def __init__(
        self,
        n_fft: int,
        hop_length: int,
        *,
        window: np.ndarray | None = None,
        padding: Literal["same", "center"] = "same",
    ):
        super().__init__()
        window = periodic_hann(n_fft) if window is None else np.asarray(window, np.float64)
        basis, weight = inverse_basis(window, hop_length)
        if padding == "same" and (n_fft - hop_length) % 2:
            raise ValueError(
                f'istft: n_fft {n_fft} minus hop_length {hop_length} is odd; "same" needs it even'
            )
        self.hop_length = hop_length
        self.trim = (n_fft - hop_length) // 2 if padding == "same" else n_fft // 2
        self.n_fft = n_fft
        self._basis = mx.array(basis.astype(np.float32))
        self._weight = mx.array(weight.astype(np.float32))

    def __call__(self, real: mx.array, imag: mx.array) -> mx.array:
        """real, imag: (B, T, n_fft/2 + 1) → samples (B, L) float32."""
        spectrum = mx.concatenate([real, imag], axis=2).astype(mx.float32)
        frames = spectrum @ self._basis  # (B, T, R hop)
        samples = self._overlap_add(frames)
        envelope = self._overlap_add(
            mx.broadcast_to(self._weight, (1, frames.shape[1], self._weight.shape[0]))
        )
        end = (frames.shape[1] - 1) * self.hop_length + self.n_fft - self.trim
        return samples[:, self.trim : end] / envelope[:, self.trim : end]

    def _overlap_add(self, frames: mx.array) -> mx.array:
        """(B, T, R hop) -> (B, (T + R - 1) hop): block r of a frame is added r blocks later."""
        batch, steps, width = frames.shape
        reach = width // self.hop_length
        blocks = frames.reshape(batch, steps, reach, self.hop_length)
        out = mx.zeros((batch, steps + reach - 1, self.hop_length))
        for r in range(reach):
            out[:, r : r + steps] += blocks[:, :, r]
        return out.flatten(1)

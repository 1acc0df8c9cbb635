"""Inverse short-time Fourier transform with real numbers only: two products and shifted sums.

No FFT, no complex dtype, no fold: on MPS odd lengths, conjugates and real times complex are wrong in some
release (torch_ref/limits), and each was missing in older ones. Griffin and Lim, "Signal estimation from
modified short-time Fourier transform", 1984. Definitions: torch.istft for "center";
for "same" gemelo-ai/vocos spectral_ops.py (MIT), rewritten. Differs from upstream: no known difference.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.limits.remedies import at_least_float32
from tts_core.audio.mel import inverse_basis, periodic_hann


class InverseSTFT(nn.Module):
    """Inverse transform of a one-sided spectrum to samples, without parameters.

    window: (n_fft,), periodic Hann if None. padding "center" gives hop_length (T - 1) samples, "same"
    hop_length T.
    Raises ValueError if windows leave gaps, or for "same" if n_fft - hop_length is odd.
    """

    _basis: Tensor
    _weight: Tensor

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
        # on the CPU even if the network is created on the meta device: no checkpoint fills them
        made = {"dtype": torch.float32, "device": "cpu"}
        self.register_buffer("_basis", torch.tensor(basis, **made), persistent=False)
        self.register_buffer("_weight", torch.tensor(weight, **made), persistent=False)

    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        """real, imag: (B, n_fft/2 + 1, T) → samples (B, L), at least float32."""
        spectrum = at_least_float32(torch.cat([real, imag], dim=1))
        frames = spectrum.transpose(1, 2) @ self._basis.to(spectrum.dtype)  # (B, T, R hop)
        samples = self._overlap_add(frames)
        envelope = self._overlap_add(self._weight.to(frames.dtype).expand(1, frames.shape[1], -1))
        end = (frames.shape[1] - 1) * self.hop_length + self.n_fft - self.trim
        return samples[:, self.trim : end] / envelope[:, self.trim : end]

    def _overlap_add(self, frames: Tensor) -> Tensor:
        """(B, T, R hop) -> (B, (T + R - 1) hop): block r of a frame is added r blocks later."""
        batch, steps, width = frames.shape
        reach = width // self.hop_length
        blocks = frames.reshape(batch, steps, reach, self.hop_length)
        out = blocks.new_zeros(batch, steps + reach - 1, self.hop_length)
        for r in range(reach):
            out[:, r : r + steps] += blocks[:, :, r]
        return out.flatten(1)

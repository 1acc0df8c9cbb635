"""Split sound into bands that add up to it exactly, and match the level of each band to a reference.

Definition: adefossez/julius 0.2.7 (MIT) bands.py; facebookresearch/audiocraft (MIT) re_eq. Rewritten: the
filters are a convolution in windows, no FFT. Differs from upstream: a silent band stays silent, where
upstream divides by zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.layers.conv import conv1d
from tts_core.audio.bands import lowpass_filters

SILENT = 1e-12  # standard deviation below which a band is not amplified further


def split_bands(x: Tensor, n_bands: int, sample_rate: int) -> Tensor:
    """Split a signal, extended by its end values, into bands. (B, L) → (B, n_bands, L), lowest band first."""
    filters = torch.as_tensor(lowpass_filters(n_bands, sample_rate).copy()).to(x.dtype).to(x.device)
    half = filters.shape[1] // 2
    padded = torch.cat([x[:, :1].expand(-1, half), x, x[:, -1:].expand(-1, half)], dim=1)
    low = conv1d(padded[:, None], filters[:, None])
    return torch.cat([low[:, :1], low[:, 1:] - low[:, :-1], x[:, None] - low[:, -1:]], dim=1)


def match_levels(
    wave: Tensor, reference: Tensor, sample_rate: int, *, n_bands: int = 32, strictness: float = 1.0
) -> Tensor:
    """Scale each band of `wave` to the reference's standard deviation. (L,), (L',) → (L,).

    strictness: exponent of the gains; 0 changes nothing, 1 matches fully.
    """
    bands = split_bands(wave[None], n_bands, sample_rate)[0]
    wanted = _deviation(split_bands(reference[None], n_bands, sample_rate)[0])
    gains = (wanted / _deviation(bands).clamp(min=SILENT)) ** strictness
    return (bands * gains).sum(dim=0)


def _deviation(bands: Tensor) -> Tensor:
    """Compute the unbiased standard deviation. (N, L) → (N, 1)."""
    return bands.std(dim=1, keepdim=True)

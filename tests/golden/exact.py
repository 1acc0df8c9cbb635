"""Tables of the float64 oracle that are not rounded to float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tts_core.audio.mel import inverse_basis, periodic_hann


@contextmanager
def exact_rotary(kind: str) -> Iterator[None]:
    """Rotary tables in float64 where the kind of side is "float64"; others stay as they are."""
    if kind == "float64":
        with mock.patch("torch_ref.layers.rope.rope_table", _rope_table):
            yield
    else:
        yield


def _rope_table(length: int, head_dim: int, theta: float, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The angle of position t and pair i is t / (unit theta^(2i / E))."""
    pair = np.arange(head_dim // 2)
    angles = np.arange(length)[:, None] / (unit * theta ** (2.0 * pair / head_dim))
    return np.cos(angles), np.sin(angles)


def exact_transform(istft: Any, window: np.ndarray | None = None) -> None:
    """Give an inverse STFT of torch its basis and weights in float64."""
    import torch

    window = periodic_hann(istft.n_fft) if window is None else window
    istft._basis, istft._weight = map(torch.from_numpy, inverse_basis(window, istft.hop_length))

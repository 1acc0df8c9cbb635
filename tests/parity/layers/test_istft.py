"""Inverse STFT: against torch.istft and Vocos's definition in float64, with FFT as the independent method."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mlx_port.layers.istft as mlx_istft
import torch_ref.layers.istft as torch_istft

SIZES = [(16, 4, 1), (16, 4, 7), (21, 7, 3), (16, 6, 5), (1280, 320, 3), (15, 5, 4)]


def spectrum(n_fft: int, frames: int) -> np.ndarray:
    """(2, bins, T) complex128, with imaginary parts where they must have no effect."""
    rng = np.random.default_rng(n_fft * frames)
    parts = rng.standard_normal((2, 2, n_fft // 2 + 1, frames))
    return (parts[0] + 1j * parts[1]).astype(np.complex64).astype(np.complex128)


def same64(values: np.ndarray, n_fft: int, hop: int) -> torch.Tensor:
    """Vocos: irfft, window, fold, divide by the folded squared window, cut (n_fft - hop)/2 at each end."""
    window = torch.hann_window(n_fft, dtype=torch.float64)
    frames = torch.fft.irfft(torch.from_numpy(values), n_fft, dim=1) * window[:, None]
    length = (values.shape[-1] - 1) * hop + n_fft
    fold = {"output_size": (1, length), "kernel_size": (1, n_fft), "stride": (1, hop)}
    samples = F.fold(frames, **fold)[:, 0, 0]
    envelope = F.fold((window**2)[None, :, None].expand(1, n_fft, values.shape[-1]), **fold)[:, 0, 0]
    cut = (n_fft - hop) // 2
    return samples[:, cut : length - cut] / envelope[:, cut : length - cut]


def both(layer: Any, values: Any, *args: int) -> list[np.ndarray]:
    real, imag = values.real.astype(np.float32), values.imag.astype(np.float32)
    ours = torch_istft.InverseSTFT(*args, padding=layer)(torch.from_numpy(real), torch.from_numpy(imag))
    port = mlx_istft.InverseSTFT(*args, padding=layer)
    twin = port(mx.array(real.transpose(0, 2, 1)), mx.array(imag.transpose(0, 2, 1)))
    return [ours.numpy(), np.array(twin)]


@pytest.mark.parametrize(("n_fft", "hop", "frames"), SIZES)
def test_same_is_the_definition_of_vocos(n_fft, hop, frames):
    values = spectrum(n_fft, frames)
    truth = same64(values, n_fft, hop).numpy()
    for got in both("same", values, n_fft, hop):
        assert got.shape == truth.shape == (2, hop * frames)
        assert np.abs(got - truth).max() <= 64 * 2.0**-24 * np.abs(truth).max()


@pytest.mark.parametrize(("n_fft", "hop", "frames"), [size for size in SIZES if size[2] > 1])
def test_center_is_torch_istft(n_fft, hop, frames):
    values = spectrum(n_fft, frames)
    window = torch.hann_window(n_fft, dtype=torch.float64)
    truth = torch.istft(torch.from_numpy(values), n_fft, hop, window=window, center=True).numpy()
    for got in both("center", values, n_fft, hop):
        got = got[:, : truth.shape[1]]  # for an odd n_fft torch stops at hop (T - 1) too
        assert got.shape == truth.shape
        assert np.abs(got - truth).max() <= 64 * 2.0**-24 * np.abs(truth).max()


def test_a_signal_survives_the_round_trip():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 640)))
    values = torch.stft(x, 64, 16, window=torch.hann_window(64, dtype=torch.float64), return_complex=True)
    for got in both("center", values.numpy(), 64, 16):
        assert got.shape == (1, 640)
        assert np.abs(got - x.numpy()).max() < 1e-5


@pytest.mark.parametrize("module", [torch_istft, mlx_istft])
def test_sizes_that_cannot_work_are_refused(module):
    with pytest.raises(ValueError, match="odd"):
        module.InverseSTFT(16, 5)
    with pytest.raises(ValueError, match="hop_length 17"):
        module.InverseSTFT(16, 17)
    with pytest.raises(ValueError, match="without weight"):
        module.InverseSTFT(16, 16, padding="center")

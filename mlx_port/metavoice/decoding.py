"""Codes of all codebooks to a waveform, by Vocos or by multi-band diffusion."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.mbd import MultiBandDiffusion
from mlx_port.codecs.vocos import Vocos
from tts_core.codecs.policy import CodecPolicy
from tts_core.metavoice.request import BANDWIDTH_ID
from tts_core.noise import NormalNoise


class VocosDecoder:
    """One pass, in windows; nothing is drawn. policy: the windows."""

    def __init__(self, vocoder: Vocos):
        self.vocoder, self.policy = vocoder, CodecPolicy()

    def decode(self, codes: Sequence[np.ndarray], noise: Sequence[NormalNoise]) -> list[np.ndarray]:
        """(Q, F) of each piece → (L,) float32 samples each."""
        return [self._decode(one) for one in codes]

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        on_device = to_device(self.vocoder.head.out.weight, codes[None])
        audio = [np.zeros(0, np.float32)]
        for start, stop in self.policy.decode_cuts(codes.shape[1]):
            audio.append(to_host(self.vocoder.decode_frames(on_device, start, stop, BANDWIDTH_ID))[0])
        return np.concatenate(audio)


class DiffusionDecoder:
    """EnCodec's latents and wave, and the diffusion that makes a better wave of them, a band at a time."""

    def __init__(self, codec: Encodec, diffusion: MultiBandDiffusion):
        self.codec, self.diffusion = codec, diffusion

    def decode(self, codes: Sequence[np.ndarray], noise: Sequence[NormalNoise]) -> list[np.ndarray]:
        """(Q, F) of each piece, F > 0, and a source of numbers → (L,) float32 samples each."""
        latents, waves = [], []
        for one in codes:
            latents.append(self._latents(one))
            waves.append(self.codec.decode(one[None])[0])
        return [to_host(wave) for wave in self.diffusion.decode(latents, waves, noise)]

    def _latents(self, codes: np.ndarray) -> mx.array:
        """(Q, F) → (C, F)."""
        entries = self.codec.quantizer.layers[0].codebook.embed
        return self.codec.quantizer.decode(to_device(entries, codes[None]))[0].T


def to_device(weight: mx.array, array: np.ndarray) -> mx.array:
    """A copy where a weight is: MLX has one device."""
    return mx.array(array)


def to_host(x: mx.array) -> np.ndarray:
    """Wait for the device and read, as float32."""
    return np.array(x).astype(np.float32)

"""Decode codes of all codebooks to a waveform, with Vocos or multi-band diffusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.mbd import MultiBandDiffusion
from mlx_port.codecs.vocos import Vocos
from mlx_port.codecs.vocos_calls import decode_pieces
from mlx_port.host import Host
from tts_core.codecs.policy import CodecPolicy
from tts_core.metavoice.request import BANDWIDTH_ID
from tts_core.nn.noise import NormalNoise


class VocosDecoder:
    """Vocos in windows, without sampling."""

    def __init__(self, vocoder: Vocos):
        self.vocoder, self.policy = vocoder, CodecPolicy()

    def decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[NormalNoise],
        *,
        check: Callable[[], None] | None = None,
    ) -> list[np.ndarray]:
        """Decode pieces (Q, F) to samples (L,) float32 each. check: called between windows; may raise."""
        return decode_pieces(self.vocoder, codes, self.policy.decode_cuts, BANDWIDTH_ID, check=check)


class DiffusionDecoder:
    """Multi-band diffusion, conditioned on EnCodec's latents and waveform, one band at a time."""

    def __init__(self, codec: Encodec, diffusion: MultiBandDiffusion, host: Host):
        self.codec, self.diffusion, self.host = codec, diffusion, host

    def decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[NormalNoise],
        *,
        check: Callable[[], None] | None = None,
    ) -> list[np.ndarray]:
        """Decode pieces (Q, F), F > 0, each with a noise source, to samples (L,) float32 each.

        check: called before each timestep; may raise.
        """
        latents, waves = [], []
        for one in codes:
            latents.append(self._latents(one))
            waves.append(self.codec.decode(one[None])[0])
        made = self.diffusion.decode(latents, waves, noise, check=check)
        return [self.host.to_host(wave).astype(np.float32) for wave in made]

    def _latents(self, codes: np.ndarray) -> mx.array:
        """Compute the codec's latents. (Q, F) → (C, F)."""
        return self.codec.quantizer.decode(self.host.to_device(codes[None]))[0].T

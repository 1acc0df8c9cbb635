"""Decode codes of all codebooks to a waveform, with Vocos or multi-band diffusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos_calls import Vocoder, decode_codes, launch_codes
from tts_core.metavoice.request import BANDWIDTH_ID
from tts_core.nn.beside import Pending
from tts_core.nn.host import Device
from tts_core.nn.noise import NormalNoise


class VocosDecoder:
    """Vocos in windows, without sampling."""

    def __init__(self, vocoder: Vocoder, host: Device):
        self.vocoder, self.host, self.policy = vocoder, host, CodecPolicy()

    def decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[NormalNoise],
        *,
        check: Callable[[], None] | None = None,
    ) -> list[np.ndarray]:
        """Decode pieces (Q, F) to samples (L,) float32 each. check: called between windows; may raise."""
        cuts = self.policy.decode_cuts
        return decode_codes(self.vocoder, self.host, codes, cuts, BANDWIDTH_ID, check=check)

    def launch(self, codes: Sequence[np.ndarray]) -> Pending[list[np.ndarray]]:
        """Begin the same, where the host `overlaps` beside other work."""
        return launch_codes(self.vocoder, self.host, codes, self.policy.decode_cuts, BANDWIDTH_ID)


class DiffusionDecoder:
    """Multi-band diffusion, conditioned on EnCodec's latents and waveform, one band at a time."""

    def __init__(self, codec: Any, diffusion: Any, host: Device):
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
        for text_codes in codes:
            latents.append(self.codec.latents(text_codes[None])[0])
            waves.append(self.codec.decode(text_codes[None])[0])
        made = self.diffusion.decode(latents, waves, noise, check=check)
        return [self.host.to_host(wave).astype(np.float32) for wave in made]

    def launch(self, codes: Sequence[np.ndarray]) -> None:
        """Return None: each of its many timesteps draws on the host."""

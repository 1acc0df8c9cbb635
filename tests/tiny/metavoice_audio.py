"""MetaVoice's speaker encoder and multi-band diffusion on a side, NumPy in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tests.sides import Side, Stored


@dataclass
class Rows:
    """Recorded draws as a source of noise; records which were taken."""

    draws: np.ndarray  # (rows, L)
    taken: set[int] = field(default_factory=set)

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.draws[row].shape, f"draw {row}: shape {shape}, recorded {self.draws[row].shape}"
        self.taken.add(row)
        return self.draws[row]


@dataclass(frozen=True, eq=False)
class AudioSide(Side):
    """A side with both networks. Latents are (B, C, F), inputs of a U-Net (B, 1, T)."""

    part: Callable[[str], Stored]  # kind of network → its weights

    @cached_property
    def encoder(self) -> Any:
        kind = "metavoice_speaker_encoder"
        return self.network(kind, self.part(kind))

    @cached_property
    def diffusion(self) -> Any:
        part = self.part("mbd")

        def weights(band: int) -> dict[str, Any]:
            return self.tensors("mbd", part, f"bands.{band}.")

        return self.module("codecs.mbd").MultiBandDiffusion(part.config, weights)

    @cached_property
    def bands(self) -> list[Any]:
        return [self.diffusion.band(b) for b in range(len(self.diffusion.config.bands))]

    @property
    def band_split(self) -> Any:
        return self.module("codecs.band_split")

    def unet(self, band: int, x: np.ndarray, step: int, latent: np.ndarray) -> np.ndarray:
        """(B, 1, T), latents (B, C, F) → (B, 1, T)."""
        return self.from_channels(self.bands[band].unet(self.channels(x), step, self.channels(latent)))

    def sample(self, band: int, latent: np.ndarray, moves: Sequence[Any], draws: np.ndarray) -> np.ndarray:
        """Draws (rows, L), of which the band takes as many as it needs → (L,), before the processor."""
        return self.numpy(
            self.bands[band].sample(self.channels(latent), moves, lambda row: self.array(draws[row][None]))
        )[0]

    def process(self, band: int, x: np.ndarray) -> np.ndarray:
        """(B, L) → same."""
        return self.numpy(self.bands[band].process(self.array(x)))

    def split(self, x: np.ndarray, n_bands: int, sample_rate: int) -> np.ndarray:
        """(L,) → (n_bands, L)."""
        return self.numpy(self.band_split.split_bands(self.array(x[None]), n_bands, sample_rate))[0]

    def match(
        self, wave: np.ndarray, reference: np.ndarray, sample_rate: int, about: dict[str, Any]
    ) -> np.ndarray:
        """(L,), (L,) → (L,). about: n_bands and strictness."""
        how = {name: about[name] for name in ("n_bands", "strictness")}
        match_levels = self.band_split.match_levels
        return self.numpy(match_levels(self.array(wave), self.array(reference), sample_rate, **how))

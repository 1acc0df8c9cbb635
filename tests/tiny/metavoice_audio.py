"""MetaVoice's speaker encoder and multi-band diffusion behind one face: PyTorch twice, and MLX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tts_core import models


@dataclass
class Rows:
    """Recorded draws in the place of a source of noise; remembers which were taken."""

    draws: np.ndarray  # (rows, L)
    taken: set[int] = field(default_factory=set)

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.draws[row].shape, f"draw {row}: shape {shape}, recorded {self.draws[row].shape}"
        self.taken.add(row)
        return self.draws[row]


@dataclass(frozen=True, eq=False)
class AudioSide:
    """One framework in one precision. Latents stand as (B, C, F), U-Net inputs as (B, 1, T)."""

    kind: str  # "torch" in float32, "float64" in torch, or "mlx"
    part: Callable[[str], Any]  # kind of network → config, names() and read(name) of its weights

    @property
    def package(self) -> str:
        return "mlx_port" if self.kind == "mlx" else "torch_ref"

    def array(self, x: np.ndarray) -> Any:
        if self.kind == "mlx":
            import mlx.core as mx

            return mx.array(x)
        import torch

        return torch.tensor(x, dtype=torch.float64 if self.kind == "float64" else torch.float32)

    def numpy(self, x: Any) -> np.ndarray:
        return np.array(x) if self.kind == "mlx" else x.detach().numpy()

    def channels(self, x: np.ndarray) -> Any:
        """(B, C, T) into this side's own order."""
        return self.array(x.swapaxes(1, 2) if self.kind == "mlx" else x)

    @cached_property
    def encoder(self) -> Any:
        part = self.part("metavoice_speaker_encoder")
        module = importlib.import_module(f"{self.package}.metavoice.speaker_encoder")
        network = module.SpeakerEncoder(part.config)
        tensors = {name: self.array(part.read(name)) for name in part.names()}
        if self.kind == "mlx":
            network.load_weights(list(tensors.items()), strict=True)
        else:
            network.load_state_dict(tensors, strict=True, assign=True)
        return network

    @cached_property
    def diffusion(self) -> Any:
        part = self.part("mbd")
        module = importlib.import_module(f"{self.package}.codecs.mbd")

        def weights(band: int) -> dict[str, Any]:
            head, found = f"bands.{band}.", {}
            for name in part.names():
                if name.startswith(head):
                    tensor = part.read(name)
                    axes = models.network("mbd").mlx_axes(part.config, name, tensor.ndim)
                    turned = tensor if axes is None or self.kind != "mlx" else tensor.transpose(axes)
                    found[name.removeprefix(head)] = self.array(turned)
            return found

        return module.MultiBandDiffusion(part.config, weights)

    @cached_property
    def bands(self) -> list[Any]:
        return [self.diffusion.band(b) for b in range(len(self.diffusion.config.bands))]

    @property
    def band_split(self) -> Any:
        return importlib.import_module(f"{self.package}.codecs.band_split")

    def unet(self, band: int, x: np.ndarray, step: int, latent: np.ndarray) -> np.ndarray:
        """(B, 1, T), latents (B, C, F) → (B, 1, T)."""
        out = self.numpy(self.bands[band].unet(self.channels(x), step, self.channels(latent)))
        return out.swapaxes(1, 2) if self.kind == "mlx" else out

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

"""Parrot's engine."""

from __future__ import annotations

import numpy as np
import torch

from torch_ref.codecs.dac import Dac
from torch_ref.host import Host
from torch_ref.parrot.parrot import Parrot


class ParrotEngine:
    """Parrot's network and the codec; a seed and the codebook's number shift the code."""

    def __init__(self, network: Parrot, codec: Dac, words: str):
        self.network, self.codec, self.words = network, codec, words
        self.config, self.codec_config = network.config, codec.config
        self.host = Host(network.norm)

    @torch.inference_mode()
    def codes(self, features: np.ndarray, seed: int) -> np.ndarray:
        """(1, T, D) → (Q, T) int32."""
        best = self.host.to_host(self.network(self.host.to_device(features)).argmax(dim=-1))
        books = np.arange(self.codec_config.n_codebooks)[:, None]
        return ((best + books + seed) % self.codec_config.codebook_size).astype(np.int32)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """(Q, T) → (L,) float32."""
        return self.host.to_host(self.codec.decode(codes[None]))[0].astype(np.float32)

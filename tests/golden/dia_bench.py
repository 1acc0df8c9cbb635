"""Dia on both sides, NumPy in and out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.bench import Bench, built, network, part_of
from tests.sides import Side
from tests.tiny.networks import Weights, dac_config, tiny
from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig


@dataclass(frozen=True)
class DiaSide(Side):
    """A side with a pipeline of Dia."""

    pipeline: Any

    @property
    def config(self) -> DiaConfig:
        return self.pipeline.config

    def encode_text(self, ids: np.ndarray) -> np.ndarray:
        """(S,) → (S, D)."""
        return self.numpy(self.pipeline.engine.network.model.encoder(self.array(ids[None])))[0]

    def cross(self, ids: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """A layer's cross-attention keys and values of a text. (S,) → (K, S, E) each."""
        model = self.pipeline.engine.network.model
        source = model.decoder.source(model.encoder(self.array(ids[None])), None)
        return self.numpy(source.keys[layer])[0], self.numpy(source.values[layer])[0]

    def teacher_forced(
        self, ids: np.ndarray, tokens: np.ndarray, prefill: int
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
        """Logits of given rows, the first `prefill` at once, the others one by one; and every layer's cache.

        ids: (S,), tokens: (T, C) → (2, T, C, V), and keys and values, (2, K, T, E); unconditional row first.
        """
        network = self.pipeline.engine.network
        source = network.read([self.array(ids)], network.encode_empty())
        cache = network.new_cache()
        rows = np.stack([tokens, tokens])
        cuts = [(0, prefill), *((t, t + 1) for t in range(prefill, len(tokens)))]
        logits = [self.numpy(network(self.array(rows[:, a:b]), cache, source)) for a, b in cuts]
        held = [tuple(self.numpy(x[:, :, : layer.length])[::-1] for x in layer.buffers) for layer in cache]
        return np.concatenate(logits, axis=1)[::-1], held


def dia_bench(side: str, weights: Path, config: Path) -> Bench[DiaSide]:
    """A pipeline of these files with a random codec, whose sound nothing compares."""
    sizes = part_of("dia", weights, config).config
    books, size = sizes.decoder_config.num_channels, sizes.eos_token_id
    codec = tiny(replace(dac_config(), n_codebooks=books, codebook_size=size, codebook_dim=(2,) * books))
    return Bench.load(side, lambda kind: DiaSide(kind, _pipeline(kind, weights, config, codec)))


def _pipeline(kind: str, weights: Path, config: Path, codec: Weights[DacConfig]) -> Any:
    side, dac = Side(kind), built(kind, "dac", codec)
    networks = {"dia": network(kind, "dia", weights, config), "dac": dac}
    return side.module("dia.pipeline").compose(networks, **side.fastest("dia", dac))

"""MetaVoice's language models on a side, NumPy in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sides import Side, Stored
from tests.tiny.metavoice import tilted
from tts_core.metavoice.codes import second_stage_rows
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.nn.noise import Noise


@dataclass(frozen=True)
class LanguageSide(Side):
    """A side with both language models."""

    def first_stage(self, weights: Stored) -> Any:
        return self.network("metavoice", weights)

    def second_stage(self, weights: Stored) -> Any:
        return self.network("metavoice_second_stage", weights)

    def fill_codebooks_as_upstream(
        self,
        network: Any,
        text: np.ndarray,
        codes: np.ndarray,
        embedding: np.ndarray,
        noise: Noise,
        *,
        temperature: float = 1.0,
        top_k: int | None = 200,
    ) -> np.ndarray:
        """All codebooks by value, as upstream reads them: one misplaced code shifts its whole codebook."""
        code = self.module("metavoice.codes")
        rows = second_stage_rows(text, codes, network.config.max_position_embeddings)
        ids = code.draw(code.predict(network, rows, embedding), noise, temperature=temperature, top_k=top_k)
        return tilted(np.concatenate([rows, self.numpy(ids).astype(np.int32)]))[1]

    def step(
        self,
        network: Any,
        embeddings: np.ndarray,
        sampling: FirstStageSampling,
        *,
        room: int,
        end_of_text: int,
    ) -> Any:
        """A plain step. embeddings: (B, E)."""
        with self.inference():
            return self.module("metavoice.step").Step(
                network, self.array(embeddings), sampling, room=room, end_of_text=end_of_text
            )

    def rows(self, step: Any, tokens: np.ndarray) -> np.ndarray:
        """A step's logits after the last of (B, T) ids. → (G, B, V)."""
        with self.inference():
            return self.numpy(step.logits(self.array(tokens), step.cache))

    def guided(self, rows: Sequence[np.ndarray], sampling: FirstStageSampling) -> np.ndarray:
        """(G, B, V) → (B, V)."""
        guide = self.module("metavoice.sampling").guide
        arrays = [self.array(row) for row in rows]
        return self.numpy(guide(arrays, sampling.cfg_scale, sampling.text_cfg_scale))

    def probabilities(self, logits: np.ndarray, sampling: FirstStageSampling) -> np.ndarray:
        return self.numpy(self.module("metavoice.sampling").probabilities(self.array(logits), sampling))

    def predict(self, network: Any, rows: np.ndarray, embeddings: np.ndarray | None) -> np.ndarray:
        """The second stage's logits. (B, 2, W), (B, E) → (B, Q, W, V)."""
        speakers = None if embeddings is None else self.array(embeddings)
        with self.inference():
            return self.numpy(network(self.array(rows), speakers))

"""MetaVoice's language models behind one face, NumPy in and out: PyTorch in float32 and float64, and MLX."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tests.tiny.metavoice import Weights, tilted
from tts_core.metavoice.codes import second_stage_rows
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.noise import Noise


@dataclass(frozen=True, eq=False)
class Side:
    """A framework. `code` gives a module of its metavoice package by name."""

    name: str
    package: str
    dtype: Any

    def code(self, name: str) -> Any:
        return import_module(f"{self.package}.metavoice.{name}")

    def array(self, x: np.ndarray) -> Any:
        """Floating numbers in this side's precision, integers as they are."""
        wide = x.dtype.kind == "f"
        if self.name == "mlx":
            import mlx.core as mx

            return mx.array(x.astype(np.float32) if wide else x)
        import torch

        return torch.from_numpy(np.ascontiguousarray(x)).to(self.dtype if wide else None)

    def numpy(self, x: Any) -> np.ndarray:
        return np.array(x) if self.name == "mlx" else x.detach().numpy()

    def inference(self) -> Any:
        """The context in which networks run."""
        if self.name == "mlx":
            return nullcontext()
        import torch

        return torch.inference_mode()

    def first_stage(self, weights: Weights) -> Any:
        return self._filled(self.code("first_stage").FirstStage, weights)

    def second_stage(self, weights: Weights) -> Any:
        return self._filled(self.code("second_stage").SecondStage, weights)

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
        """All codebooks by value, as upstream reads them: one code out of its place shifts its whole book."""
        code = self.code("codes")
        rows = second_stage_rows(text, codes, network.config.max_position_embeddings)
        ids = code.draw(code.predict(network, rows, embedding), noise, temperature=temperature, top_k=top_k)
        return tilted(np.concatenate([rows, self.numpy(ids).astype(np.int32)]))[1]

    def _filled(self, kind: type, weights: Weights) -> Any:
        if self.name == "mlx":
            network = kind(weights.config)
            network.load_weights([(name, self.array(weights.read(name))) for name in weights.names()])
            network.eval()
            return network
        import torch

        with torch.device("meta"):
            network = kind(weights.config)
        state = {name: self.array(weights.read(name)) for name in weights.names()}
        network.load_state_dict(state, strict=True, assign=True)
        return network.eval()

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
            return self.code("step").Step(
                network, self.array(embeddings), sampling, room=room, end_of_text=end_of_text
            )

    def rows(self, step: Any, tokens: np.ndarray) -> np.ndarray:
        """A step's logits behind the last of (B, T) ids. → (G, B, V)."""
        with self.inference():
            return self.numpy(step.logits(self.array(tokens), step.cache))

    def guided(self, rows: Sequence[np.ndarray], sampling: FirstStageSampling) -> np.ndarray:
        """(G, B, V) → (B, V)."""
        guide = self.code("sampling").guide
        arrays = [self.array(row) for row in rows]
        return self.numpy(guide(arrays, sampling.cfg_scale, sampling.text_cfg_scale))

    def probabilities(self, logits: np.ndarray, sampling: FirstStageSampling) -> np.ndarray:
        return self.numpy(self.code("sampling").probabilities(self.array(logits), sampling))

    def predict(self, network: Any, rows: np.ndarray, embeddings: np.ndarray | None) -> np.ndarray:
        """The second stage's logits. (B, 2, W), (B, E) → (B, Q, W, V)."""
        speakers = None if embeddings is None else self.array(embeddings)
        with self.inference():
            return self.numpy(network(self.array(rows), speakers))


@cache
def side_of(name: str) -> Side:
    """ "torch", "float64" (PyTorch's too) or "mlx"."""
    if name == "mlx":
        import mlx.core as mx

        return Side("mlx", "mlx_port", mx.float32)
    import torch

    return Side("torch", "torch_ref", torch.float64 if name == "float64" else torch.float32)

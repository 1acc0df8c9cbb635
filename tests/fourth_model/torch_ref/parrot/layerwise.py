"""Parrot, one layer at a time."""

from __future__ import annotations

from torch_ref.layerwise import Layers, Tensors


class ParrotLayers(Layers):
    """Stages of the ladder."""

    KIND = "parrot"

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The norm."""
        return {"rows": self.network.norm(x["rows"])}

    def beak(self, x: Tensors, index: int) -> Tensors:
        """The head."""
        return {"logits": self.network.beak(x["rows"])}

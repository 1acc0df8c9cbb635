"""Run Dia2 one layer at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ref.dia2.dia2 import Dia2
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layerwise import Layers, Tensors
from tts_core.nn.layer_order import passes


class Dia2Layers(Layers[Dia2]):
    """Stages of tts_core.dia2.layer_order."""

    KIND = "dia2"
    wide = ("actions", "logits", "codes")

    def row_embedding(self, x: Tensors, index: int) -> Tensors:
        """The embedding of ids."""
        return {"rows": self.network.transformer.embed(x["tokens"])}

    def layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the transformer over all rows, in several calls with a cache."""
        transformer, cache, parts = self.network.transformer, KeyValueCache(), []
        for start, stop in passes(x["rows"].shape[1]):
            rotation = transformer.rotary(start, stop - start)
            parts.append(transformer.layers[index](x["rows"][:, start:stop], rotation, cache))
        return {"rows": torch.cat(parts, dim=1)}

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The transformer's last norm."""
        return {"rows": self.network.transformer.norm(x["rows"])}

    def action_head(self, x: Tensors, index: int) -> Tensors:
        """The action's logits."""
        return {"actions": self.network.transformer.actions(x["rows"])}

    def code_head(self, x: Tensors, index: int) -> Tensors:
        """The first code's logits."""
        return {"logits": self.network.transformer.codes(x["rows"])}

    def stage_embedding(self, x: Tensors, index: int) -> Tensors:
        """The inputs of all stages of the depformer."""
        depformer, text = self.network.depformer, (x["text"][:, 0], x["text"][:, 1])
        hidden, previous = x["frames"], x["previous"]
        return {"stages": self._each(lambda s: depformer.embed(s, hidden, previous[:, s], text))}

    def stage_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the depformer, over the stages one after the other."""
        depformer, cache = self.network.depformer, KeyValueCache()
        layer, sets = depformer.layers[index], depformer.stage_sets

        def run(stage: int) -> Tensor:
            rotation = None if depformer.rotary is None else depformer.rotary(stage, 1)
            return layer(x["stages"][:, stage : stage + 1], sets[stage], rotation, cache)

        return {"stages": self._each(run)}

    def stage_norm(self, x: Tensors, index: int) -> Tensors:
        """The depformer's last norm."""
        return {"stages": self.network.depformer.norm(x["stages"])}

    def stage_heads(self, x: Tensors, index: int) -> Tensors:
        """The logits of every stage."""
        depformer = self.network.depformer
        return {"codes": self._each(lambda s: depformer.head(s, x["stages"][:, s : s + 1]))}

    def _each(self, run: Callable[[int], Tensor]) -> Tensor:
        """Join the results of all stages. (F, 1, ·) each → (F, Q - 1, ·)."""
        return torch.cat([run(stage) for stage in range(len(self.network.depformer.stage_sets))], dim=1)

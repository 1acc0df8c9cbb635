"""Run Dia2 one layer at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tts_core.nn.layer_order import passes
from tts_core.nn.layers import Arrays, Layers


class Dia2Layers(Layers):
    """Stages of tts_core.dia2.layer_order."""

    KIND = "dia2"
    wide = ("actions", "logits", "codes")

    def row_embedding(self, x: Arrays, index: int) -> Arrays:
        """The embedding of ids."""
        return {"rows": self.network.transformer.embed(x["tokens"])}

    def layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the transformer over all rows, in several calls with a cache."""
        transformer, parts = self.network.transformer, []
        cache = transformer.new_cache()[index]
        for start, stop in passes(x["rows"].shape[1]):
            rotation = transformer.rotary(start, stop - start)
            parts.append(transformer.layers[index](x["rows"][:, start:stop], rotation, cache))
        return {"rows": self.ops.concatenate(parts, axis=1)}

    def action_head(self, x: Arrays, index: int) -> Arrays:
        """The action's logits."""
        return {"actions": self.network.transformer.actions(x["rows"])}

    def code_head(self, x: Arrays, index: int) -> Arrays:
        """The first code's logits."""
        return {"logits": self.network.transformer.codes(x["rows"])}

    def stage_embedding(self, x: Arrays, index: int) -> Arrays:
        """The inputs of all stages of the depformer."""
        depformer, text = self.network.depformer, (x["text"][:, 0], x["text"][:, 1])
        hidden, previous = x["frames"], x["previous"]
        return {"stages": self._each(lambda s: depformer.embed(s, hidden, previous[:, s], text))}

    def stage_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the depformer, over the stages one after the other."""
        depformer = self.network.depformer
        layer, sets, cache = depformer.layers[index], depformer.stage_sets, depformer.new_cache()[index]

        def run(stage: int) -> Any:
            rotation = None if depformer.rotary is None else depformer.rotary(stage, 1)
            return layer(x["stages"][:, stage : stage + 1], sets[stage], rotation, cache)

        return {"stages": self._each(run)}

    def stage_heads(self, x: Arrays, index: int) -> Arrays:
        """The logits of every stage."""
        depformer = self.network.depformer
        return {"codes": self._each(lambda s: depformer.head(s, x["stages"][:, s : s + 1]))}

    def _each(self, run: Callable[[int], Any]) -> Any:
        """Join the results of all stages. (F, 1, ·) each → (F, Q - 1, ·)."""
        return self.ops.concatenate(
            [run(stage) for stage in range(len(self.network.depformer.stage_sets))], axis=1
        )

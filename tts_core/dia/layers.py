"""Run Dia one layer at a time."""

from __future__ import annotations

from tts_core.nn.layer_order import passes
from tts_core.nn.layers import Arrays, Layers


class DiaLayers(Layers):
    """Stages of tts_core.dia.layer_order."""

    KIND = "dia"

    def text_embedding(self, x: Arrays, index: int) -> Arrays:
        """The embedding of ids; `zero` is the single zero id of the unconditional text."""
        embedding = self.network.model.encoder.embedding
        return {"text": embedding(x["ids"]), "nothing": embedding(x["zero"])}

    def encoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer, for the text and for the unconditional text separately."""
        encoder = self.network.model.encoder
        layer = encoder.layers[index]
        return {name: layer(x[name], encoder.rotary(0, x[name].shape[1])) for name in ("text", "nothing")}

    def row_embedding(self, x: Arrays, index: int) -> Arrays:
        """The embedding of grid rows."""
        return {"rows": self.network.model.decoder.embeddings(x["tokens"])}

    def decoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer over all rows, in several calls with a cache; also cross-attention's keys and values."""
        decoder = self.network.model.decoder
        layer, layers = decoder.layers[index], decoder.layers
        decoder.layers = layers[index : index + 1]  # the others have no weights to build a source
        source = decoder.source(x["text"], None, x["nothing"])
        decoder.layers = layers
        cache, pieces = self.network.new_cache()[index], []
        for start, stop in passes(x["rows"].shape[1]):
            rotation = decoder.rotary(start, stop - start)
            cross_rotation = decoder.cross_rotary(start, stop - start) if decoder.cross_rope else None
            pieces.append(layer(x["rows"][:, start:stop], rotation, cross_rotation, cache, source, 0))
        return {
            "rows": self.ops.concatenate(pieces, axis=1),
            "keys": source.keys[0],
            "values": source.values[0],
        }

    def head(self, x: Arrays, index: int) -> Arrays:
        """The logits."""
        return {"logits": self.network.head(x["rows"])}

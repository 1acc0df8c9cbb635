"""Run MetaVoice's networks one layer at a time."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from mlx_port.layers.cache import KeyValueCache
from mlx_port.layerwise import Layers, Tensors
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.second_stage import SecondStage
from mlx_port.metavoice.speaker_encoder import SpeakerEncoder, unit
from mlx_port.stored import Stored
from tts_core.nn.layer_order import passes


class SpeakerEncoderLayers(Layers[SpeakerEncoder]):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice_speaker_encoder"

    def lstm(self, x: Tensors, index: int) -> Tensors:
        """The state of each layer after the last frame."""
        h, c = self.network.lstm(x["slices"])[1]
        return {f"state{i}": mx.stack([h[i], c[i]]) for i in range(index + 1)}

    def linear(self, x: Tensors, index: int) -> Tensors:
        """The vectors of each slice and of the voice."""
        vectors = unit(nn.relu(self.network.linear(x[f"state{index}"][0])))
        return {"vectors": vectors, "speaker": unit(vectors.mean(axis=0))}


class FirstStageLayers(Layers[FirstStage]):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice"

    def __init__(self, config: object, weights: Stored, dtype: str):
        super().__init__(config, weights, dtype)
        self.wide = ("rows",) if dtype == "float16" else ()

    def speakers(self, x: Tensors, index: int) -> Tensors:
        """The voice's vector, added at every position."""
        return {"voice": self.network.speakers(x["embeddings"])}

    def embedding(self, x: Tensors, index: int) -> Tensors:
        """The sum of ids, positions and voice."""
        return {"rows": self.network.transformer.embed(x["tokens"], x["voice"], 0)}

    def layer(self, x: Tensors, index: int) -> Tensors:
        """One layer over all rows, in several calls with a cache."""
        layer, cache, pieces = self.network.transformer.h[index], KeyValueCache(), []
        for start, stop in passes(x["rows"].shape[1]):
            pieces.append(layer(x["rows"][:, start:stop], cache))
        return {"rows": mx.concatenate(pieces, axis=1)}

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The last norm."""
        return {"last": self.network.transformer.ln_f(x["rows"])}

    def head(self, x: Tensors, index: int) -> Tensors:
        """The logits."""
        return {"logits": self.network.head(x["last"])}


class SecondStageLayers(Layers[SecondStage]):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice_second_stage"

    def speakers(self, x: Tensors, index: int) -> Tensors:
        """The voice's vector, added at every position."""
        return {"voice": self.network.speaker_cond_pos(x["embeddings"])[:, None]}

    def embedding(self, x: Tensors, index: int) -> Tensors:
        """The sum of rows of ids, positions and voice."""
        return {"rows": self.network.transformer.embed(x["tokens"], x["voice"])}

    def layer(self, x: Tensors, index: int) -> Tensors:
        """One layer over the whole window."""
        return {"rows": self.network.transformer.h[index](x["rows"])}

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The last norm."""
        return {"rows": self.network.transformer.ln_f(x["rows"])}

    def heads(self, x: Tensors, index: int) -> Tensors:
        """The logits of each codebook."""
        return {f"logits{q}": head(x["rows"]) for q, head in enumerate(self.network.lm_heads)}

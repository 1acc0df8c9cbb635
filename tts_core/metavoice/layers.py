"""Run MetaVoice's networks one layer at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tts_core.nn.layer_order import passes
from tts_core.nn.layers import Arrays, Layers


class SpeakerEncoderLayers(Layers):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice_speaker_encoder"

    def lstm(self, x: Arrays, index: int) -> Arrays:
        """The state of each layer after the last frame."""
        h, c = self.network.lstm(x["slices"])[1]
        return {f"state{i}": self.ops.stack((h[i], c[i])) for i in range(index + 1)}

    def linear(self, x: Arrays, index: int) -> Arrays:
        """The vectors of each slice and of the voice."""
        vectors = self.network.vectors(x[f"state{index}"][0])
        return {"vectors": vectors, "speaker": self.module("metavoice.speaker_encoder").unit(vectors.mean(0))}


class FirstStageLayers(Layers):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice"

    @classmethod
    def wide_in(cls, dtype: str) -> Sequence[str]:
        """The sum of layers overflows in float16."""
        return ("rows",) if dtype == "float16" else ()

    def speakers(self, x: Arrays, index: int) -> Arrays:
        """The voice's vector, added at every position."""
        return {"voice": self.network.speakers(x["embeddings"])}

    def embedding(self, x: Arrays, index: int) -> Arrays:
        """The sum of ids, positions and voice."""
        return {"rows": self.network.transformer.embed(x["tokens"], x["voice"], 0)}

    def layer(self, x: Arrays, index: int) -> Arrays:
        """One layer over all rows, in several calls with a cache."""
        rows, layer = x["rows"], self.network.transformer.h[index]
        cache, pieces = self.network.new_cache(rows.shape[1])[index], []
        for start, stop in passes(rows.shape[1]):
            pieces.append(layer(rows[:, start:stop], cache))
        return {"rows": self.ops.concatenate(pieces, axis=1)}

    def norm(self, x: Arrays, index: int) -> Arrays:
        """The last norm."""
        return {"last": self.network.transformer.ln_f(x["rows"])}

    def head(self, x: Arrays, index: int) -> Arrays:
        """The logits."""
        return {"logits": self.network.head(x["last"])}


class SecondStageLayers(Layers):
    """Stages of tts_core.metavoice.layer_order."""

    KIND = "metavoice_second_stage"

    def speakers(self, x: Arrays, index: int) -> Arrays:
        """The voice's vector, added at every position."""
        return {"voice": self.network.speaker_cond_pos(x["embeddings"])[:, None]}

    def embedding(self, x: Arrays, index: int) -> Arrays:
        """The sum of rows of ids, positions and voice."""
        return {"rows": self.network.transformer.embed(x["tokens"], x["voice"])}

    def heads(self, x: Arrays, index: int) -> Arrays:
        """The logits of each codebook."""
        return {f"logits{q}": head(x["rows"]) for q, head in enumerate(self.network.lm_heads)}

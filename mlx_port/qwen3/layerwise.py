"""Run Qwen3-TTS one layer at a time."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.layers.cache import KeyValueCache
from mlx_port.layerwise import Layers, Tensors
from mlx_port.qwen3.blocks import logits_of
from mlx_port.qwen3.qwen3 import Qwen3
from mlx_port.qwen3.speaker_encoder import SpeakerEncoder
from tts_core.nn.layer_order import passes


class Qwen3Layers(Layers[Qwen3]):
    """Stages of tts_core.qwen3.layer_order."""

    KIND = "qwen3"
    wide = ("logits", "codes", "hidden", "skip", "moments", "vector")

    def text_embedding(self, x: Tensors, index: int) -> Tensors:
        """The embedding of text ids, projected."""
        return {"texts": self.network.talker.embed_text(x["text"])}

    def frame_embedding(self, x: Tensors, index: int) -> Tensors:
        """The embeddings of a frame's codes, and their sum with the text's."""
        talker, codes = self.network.talker, x["frames"]
        read = [talker.model.codec_embedding(codes[:, 0])]
        for stage in range(talker.code_predictor.stages):
            read.append(talker.code_predictor.embed(stage, codes[:, stage + 1]))
        return {"rows": talker.embed_frames(codes) + x["texts"], "read": mx.stack(read, axis=2)}

    def layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the talker over all rows, in several calls with a cache."""
        talker, cache, parts = self.network.talker, KeyValueCache(), []
        for start, stop in passes(x["rows"].shape[1]):
            rotation = talker.rotary(start, stop - start)
            parts.append(talker.model.layers[index](x["rows"][:, start:stop], rotation, cache))
        return {"rows": mx.concatenate(parts, axis=1)}

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The talker's last norm."""
        return {"rows": self.network.talker.model.norm(x["rows"])}

    def code_head(self, x: Tensors, index: int) -> Tensors:
        """The logits of first codes."""
        return {"logits": self.network.talker.logits(x["rows"])}

    def stage_projection(self, x: Tensors, index: int) -> Tensors:
        """What the predictor reads, in its own width."""
        return {"stages": self.network.talker.code_predictor.small_to_mtp_projection(x["stages"])}

    def stage_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the predictor: two positions, then one after the other."""
        predictor, cache, parts = self.network.talker.code_predictor, KeyValueCache(), []
        for start, stop in [(0, 2), *((at, at + 1) for at in range(2, x["stages"].shape[1]))]:
            rotation = predictor.rotary(start, stop - start)
            parts.append(predictor.model.layers[index](x["stages"][:, start:stop], rotation, cache))
        return {"stages": mx.concatenate(parts, axis=1)}

    def stage_norm(self, x: Tensors, index: int) -> Tensors:
        """The predictor's last norm."""
        return {"stages": self.network.talker.code_predictor.model.norm(x["stages"])}

    def stage_heads(self, x: Tensors, index: int) -> Tensors:
        """The logits of every other code."""
        heads, rows = self.network.talker.code_predictor.lm_head, x["stages"]
        return {"codes": mx.stack([logits_of(head, rows[:, q + 1]) for q, head in enumerate(heads)], axis=1)}

    def speaker_input(self, x: Tensors, index: int) -> Tensors:
        """The first block of the speaker encoder."""
        return {"hidden": self._encoder().blocks[0](x["hidden"]), "skip": x["hidden"][..., :0]}

    def speaker_block(self, x: Tensors, index: int) -> Tensors:
        """A further block, whose output is also kept."""
        hidden = self._encoder().blocks[index](x["hidden"])
        return {"hidden": hidden, "skip": mx.concatenate([x["skip"], hidden], axis=-1)}

    def speaker_sum(self, x: Tensors, index: int) -> Tensors:
        """The convolution of all blocks' outputs."""
        return {"hidden": self._encoder().mfa(x["skip"])}

    def speaker_moments(self, x: Tensors, index: int) -> Tensors:
        """Mean and deviation over time."""
        return {"moments": self._encoder().asp(x["hidden"])[:, 0]}

    def speaker_vector(self, x: Tensors, index: int) -> Tensors:
        """The speaker's vector."""
        return {"vector": self._encoder().fc(x["moments"][:, None])[:, 0]}

    def _encoder(self) -> SpeakerEncoder:
        encoder = self.network.speaker_encoder
        assert encoder is not None
        return encoder

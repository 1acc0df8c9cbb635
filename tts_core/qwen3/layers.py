"""Run Qwen3-TTS one layer at a time."""

from __future__ import annotations

from tts_core.nn.layer_order import passes
from tts_core.nn.layers import Arrays, Layers


class Qwen3Layers(Layers):
    """Stages of tts_core.qwen3.layer_order."""

    KIND = "qwen3"
    wide = ("logits", "codes", "hidden", "skip", "moments", "vector")

    def text_embedding(self, x: Arrays, index: int) -> Arrays:
        """The embedding of text ids, projected."""
        return {"texts": self.network.talker.embed_text(x["text"])}

    def frame_embedding(self, x: Arrays, index: int) -> Arrays:
        """The embeddings of a frame's codes, and their sum with the text's."""
        talker, codes = self.network.talker, x["frames"]
        read = [talker.model.codec_embedding(codes[:, 0])]
        for stage in range(talker.code_predictor.stages):
            read.append(talker.code_predictor.embed(stage, codes[:, stage + 1]))
        return {"rows": talker.embed_frames(codes) + x["texts"], "read": self.ops.stack(read, axis=2)}

    def layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the talker over all rows, in several calls with a cache."""
        talker, parts = self.network.talker, []
        cache = talker.new_cache()[index]
        for start, stop in passes(x["rows"].shape[1]):
            rotation = talker.rotary(start, stop - start)
            parts.append(talker.model.layers[index](x["rows"][:, start:stop], rotation, cache))
        return {"rows": self.ops.concatenate(parts, axis=1)}

    def code_head(self, x: Arrays, index: int) -> Arrays:
        """The logits of first codes."""
        return {"logits": self.network.talker.logits(x["rows"])}

    def stage_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the predictor: two positions, then one after the other."""
        predictor, parts = self.network.talker.code_predictor, []
        cache = predictor.new_cache()[index]
        for start, stop in [(0, 2), *((at, at + 1) for at in range(2, x["stages"].shape[1]))]:
            rotation = predictor.rotary(start, stop - start)
            parts.append(predictor.model.layers[index](x["stages"][:, start:stop], rotation, cache))
        return {"stages": self.ops.concatenate(parts, axis=1)}

    def stage_heads(self, x: Arrays, index: int) -> Arrays:
        """The logits of every other code."""
        heads, rows = self.network.talker.code_predictor.lm_head, x["stages"]
        logits_of = self.module("qwen3.blocks").logits_of
        return {
            "codes": self.ops.stack([logits_of(head, rows[:, q + 1]) for q, head in enumerate(heads)], axis=1)
        }

    def speaker_input(self, x: Arrays, index: int) -> Arrays:
        """The first block of the speaker encoder."""
        return {
            "hidden": self.network.speaker_encoder.blocks[0](x["hidden"]),
            "skip": self.turned(self.turned(x["hidden"])[..., :0]),
        }

    def speaker_block(self, x: Arrays, index: int) -> Arrays:
        """A further block, whose output is also kept."""
        hidden = self.network.speaker_encoder.blocks[index](x["hidden"])
        skip = self.ops.concatenate([self.turned(x["skip"]), self.turned(hidden)], axis=2)
        return {"hidden": hidden, "skip": self.turned(skip)}

    def speaker_sum(self, x: Arrays, index: int) -> Arrays:
        """The convolution of all blocks' outputs."""
        return {"hidden": self.network.speaker_encoder.mfa(x["skip"])}

    def speaker_moments(self, x: Arrays, index: int) -> Arrays:
        """Mean and deviation over time."""
        return {"moments": self.turned(self.network.speaker_encoder.asp(x["hidden"]))[:, 0]}

    def speaker_vector(self, x: Arrays, index: int) -> Arrays:
        """The speaker's vector."""
        return {
            "vector": self.turned(self.network.speaker_encoder.fc(self.turned(x["moments"][:, None])))[:, 0]
        }

"""Run MARS5's networks one layer at a time."""

from __future__ import annotations

from tts_core.nn.layer_order import single_passes
from tts_core.nn.layers import Arrays, Layers


class CodecLMLayers(Layers):
    """Stages of tts_core.mars5.layer_order: the AR."""

    KIND = "mars5"
    wide = ("heard", "speaker")

    def reference(self, x: Arrays, index: int) -> Arrays:
        """The identity row and embedded codes."""
        network, codes = self.network, x["reference"]
        positions = network.pos_embedding(codes.shape[1] + 1)
        heard = self.module("mars5.encoder").speaker_rows(
            network.spk_identity_emb.weight, network.ref_chunked_emb(codes), positions
        )
        return {"heard": heard}

    def speaker_norm(self, x: Arrays, index: int) -> Arrays:
        """The speaker encoder's last norm, of the identity row."""
        return {"speaker": self.network.spk_encoder.norm(x["heard"])[:, 0]}

    def embedding(self, x: Arrays, index: int) -> Arrays:
        """The speaker's vector and embedded ids."""
        return {"rows": self.network.rows(x["speaker"], x["ids"])}

    def layer(self, x: Arrays, index: int) -> Arrays:
        """One layer over all rows, in several calls with a cache."""
        rows, layer, config = x["rows"], self.network.ar.layers[index], self.network.config
        positions = self.module("layers.rope").RotaryPositions(
            rows.shape[1], config.head_dim, config.rope_theta
        )
        cache, pieces = self.network.new_cache(rows.shape[1])[index], []
        for start, stop in single_passes(rows.shape[1]):
            pieces.append(layer(rows[:, start:stop], positions(start, stop - start), cache))
        return {"rows": self.ops.concatenate(pieces, axis=1)}

    def head(self, x: Arrays, index: int) -> Arrays:
        """The logits."""
        return {"logits": self.network.head(x["rows"])}


class ResidualTransformerLayers(Layers):
    """Stages of tts_core.mars5.layer_order: the NAR, with a speaker and without one."""

    KIND = "mars5_nar"
    wide = ("heard", "nothing", "speakers", "text", "frames")

    def reference(self, x: Arrays, index: int) -> Arrays:
        """The identity row and embedded codes; `nothing` is only the identity row."""
        network, codes = self.network, x["reference"]
        identity, positions = network.spk_identity_emb.weight, network.ref_pos_embedding(codes.shape[1] + 1)
        embedded, speaker_rows = network.ref_embedder(codes), self.module("mars5.encoder").speaker_rows
        return {
            "heard": speaker_rows(identity, embedded, positions),
            "nothing": speaker_rows(identity, embedded[:, :0], positions[:1]),
        }

    def speaker_norm(self, x: Arrays, index: int) -> Arrays:
        """The speaker encoder's last norm, of the identity rows."""
        norm = self.network.spk_encoder.norm
        rows = [norm(x["heard"])[:, 0], norm(x["nothing"])[:, 0]]
        return {"speakers": self.ops.concatenate(rows)}

    def inputs(self, x: Arrays, index: int) -> Arrays:
        """The inputs of encoder and decoder at a timestep, and their parts."""
        network, t = self.network, x["timestep"]
        source = network.read(
            x["ids"], x["speakers"], frames=x["codes"].shape[1], timesteps=int(t.item()) + 1
        )
        return {
            "words": source.text,
            "encoder_steps": source.encoder_steps,
            "decoder_steps": source.decoder_steps,
            "text": network.encoder_input(source, t),
            "frames": network.decoder_input(x["codes"], source, t),
        }

    def encoder_norm(self, x: Arrays, index: int) -> Arrays:
        """The encoder's last norm."""
        return {"memory": self.network.tfm.encoder.norm(x["text"])}

    def decoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer over the frames."""
        return {"frames": self.network.tfm.decoder.layers[index](x["frames"], x["memory"], None, None)}

    def heads(self, x: Arrays, index: int) -> Arrays:
        """The logits of each codebook."""
        books = range(self.network.config.n_output_codebooks)
        return {f"logits{q}": self.network.head(x["frames"], [q])[:, :, 0] for q in books}

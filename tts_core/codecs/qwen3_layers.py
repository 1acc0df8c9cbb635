"""Run Qwen3-TTS's codec one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import Any

from tts_core.codecs.mimi_layers import EncoderLayers
from tts_core.nn.layers import Arrays


class Qwen3CodecLayers(EncoderLayers):
    """Runs the stages of tts_core.codecs.qwen3_codec."""

    KIND = "qwen3_codec"

    @property
    def half(self) -> Any:
        """The half of the network that encodes."""
        return self.network.encoder

    def dequantizer(self, x: Arrays, index: int) -> Arrays:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.decoder.quantizer.decode(x["codes"])}

    def pre_conv(self, x: Arrays, index: int) -> Arrays:
        """The convolution before the transformer."""
        return {"hidden": self.network.decoder.pre_conv(x["latents"])}

    def transformer_input(self, x: Arrays, index: int) -> Arrays:
        """The projection into the transformer."""
        return {"rows": self.network.decoder.pre_transformer.input_proj(self.turned(x["hidden"]))}

    def transformer_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the transformer, from the start of a stream."""
        transformer = self.network.decoder.pre_transformer
        return {"rows": transformer.layers[index](x["rows"], transformer.places(x["rows"]))}

    def transformer_output(self, x: Arrays, index: int) -> Arrays:
        """The norm and the projection out of the transformer."""
        transformer = self.network.decoder.pre_transformer
        return {"hidden": self.turned(transformer.output_proj(transformer.norm(x["rows"])))}

    def upsampling(self, x: Arrays, index: int) -> Arrays:
        """One multiplication of the rate before the blocks, with its ConvNeXt block."""
        conv, block = self.network.decoder.upsample[index]
        return {"hidden": block(conv(x["hidden"]))}

    def decoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One convolution, block or activation of the decoder."""
        return {"hidden": self.network.decoder.decoder[index](x["hidden"])}

    def decoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution, to samples."""
        sound = self.turned(self.network.decoder.decoder[index](x["hidden"]))[..., 0]
        return {"audio": self.ops.clip(sound, -1, 1)}

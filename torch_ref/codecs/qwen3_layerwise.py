"""Run Qwen3-TTS's codec one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import cast

from torch import nn

from torch_ref.codecs.mimi_layerwise import EncoderLayers, Half
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.layerwise import Tensors


class Qwen3CodecLayers(EncoderLayers[Qwen3Codec]):
    """Runs the stages of tts_core.codecs.qwen3_codec."""

    KIND = "qwen3_codec"

    @property
    def half(self) -> Half:
        """The half of the network that encodes."""
        return self.network.encoder

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.decoder.quantizer.decode(x["codes"])}

    def pre_conv(self, x: Tensors, index: int) -> Tensors:
        """The convolution before the transformer."""
        return {"hidden": self.network.decoder.pre_conv(x["latents"])}

    def transformer_input(self, x: Tensors, index: int) -> Tensors:
        """The projection into the transformer."""
        return {"rows": self.network.decoder.pre_transformer.input_proj(x["hidden"].transpose(1, 2))}

    def transformer_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the transformer, from the start of a stream."""
        transformer = self.network.decoder.pre_transformer
        return {"rows": transformer.layers[index](x["rows"], transformer.rotation(x["rows"], 0), None)[0]}

    def transformer_output(self, x: Tensors, index: int) -> Tensors:
        """The norm and the projection out of the transformer."""
        transformer = self.network.decoder.pre_transformer
        return {"hidden": transformer.output_proj(transformer.norm(x["rows"])).transpose(1, 2)}

    def upsampling(self, x: Tensors, index: int) -> Tensors:
        """One multiplication of the rate before the blocks, with its ConvNeXt block."""
        conv, block = cast(nn.ModuleList, self.network.decoder.upsample[index])
        return {"hidden": block(conv(x["hidden"]))}

    def decoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One convolution, block or activation of the decoder."""
        return {"hidden": self.network.decoder.decoder[index](x["hidden"])}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples."""
        return {"audio": self.network.decoder.decoder[index](x["hidden"])[:, 0].clamp(-1, 1)}

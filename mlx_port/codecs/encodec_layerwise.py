"""Run EnCodec one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from mlx_port.codecs.encodec import CausalStack, Encodec, RecurrentBlock
from mlx_port.layerwise import Layers, Tensors


class EncodecLayers(Layers[Encodec]):
    """Runs the stages of tts_core.codecs.encodec."""

    KIND = "encodec"

    def encoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the encoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.network.encoder, x["hidden"], index)}

    def encoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution."""
        return {"latents": _stacked(self.network.encoder, x["hidden"], index)}

    def quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: its input, its codes appended to those before, and the new residual."""
        quantizer = self.network.quantizer.layers[index]
        codes = quantizer.encode(x["latents"])
        return {
            "encodings": x["latents"],
            "codes": mx.concatenate([x["codes"], codes[:, None]], axis=1),
            "latents": x["latents"] - quantizer.decode(codes),
        }

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": _stacked(self.network.decoder, x["latents"], index)}

    def decoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the decoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.network.decoder, x["hidden"], index)}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples."""
        return {"audio": _stacked(self.network.decoder, x["hidden"], index)[..., 0]}


def _stacked(stack: CausalStack, x: mx.array, index: int) -> mx.array:
    """Run a layer, with the activation before it, if any."""
    before, layer = stack.layers[index - 1], stack.layers[index]
    made = layer(before(x) if index and isinstance(before, nn.ELU) else x)
    return made[0] if isinstance(layer, RecurrentBlock) else made

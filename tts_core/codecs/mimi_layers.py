"""Run Mimi one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import Any

from tts_core.nn.layers import Arrays, Layers


class EncoderLayers(Layers):
    """Runs the stages of tts_core.codecs.mimi.encode_stages."""

    @property
    def half(self) -> Any:
        """The half of the network that encodes."""
        raise NotImplementedError

    def encoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the encoder with weights, and the activation before it."""
        return {"hidden": self._stacked(self.half.encoder, x["hidden"], index)}

    def encoder_transformer_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the encoder's transformer."""
        return {"hidden": self._attended(self.half.encoder_transformer, x["hidden"], index)}

    def downsampling(self, x: Arrays, index: int) -> Arrays:
        """Steps to frames."""
        return {"latents": self.half.downsample(x["hidden"])}

    def quantizer_input(self, x: Arrays, index: int) -> Arrays:
        """The projection into the codebooks of quantizer `index`."""
        return {"skip": self._quantizers()[index].input_proj(x["latents"])}

    def semantic_quantizer(self, x: Arrays, index: int) -> Arrays:
        """One codebook: its input, its codes appended to those before, and the rest."""
        return self._quantized(self._quantizers()[0], x, index)

    def acoustic_quantizer(self, x: Arrays, index: int) -> Arrays:
        """One codebook: its input, its codes appended to those before, and the rest."""
        return self._quantized(self._quantizers()[1], x, index)

    def _quantizers(self) -> tuple[Any, Any]:
        quantizer = self.half.quantizer
        return quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer

    def _stacked(self, stack: Any, x: Any, index: int) -> Any:
        """Run a layer, with the activation before it, if any."""
        before, layer = stack.layers[index - 1], stack.layers[index]
        return layer(before(x) if index and isinstance(before, self.framework.nn.ELU) else x)

    def _attended(self, transformer: Any, x: Any, index: int) -> Any:
        """Run a layer of a transformer from the start of a stream. x: in the side's own order."""
        x = self.turned(x)
        return self.turned(transformer.layers[index](x, transformer.places(x)))

    def _quantized(self, quantizer: Any, x: Arrays, index: int) -> Arrays:
        book, rest = quantizer.layers[index], self.turned(x["skip"])
        codes = book.encode(rest)
        return {
            "encodings": x["skip"],
            "codes": self.ops.concatenate([x["codes"], codes[:, None]], axis=1),
            "skip": self.turned(rest - book.decode(codes)),
        }


class MimiLayers(EncoderLayers):
    """Runs the stages of tts_core.codecs.mimi."""

    KIND = "mimi"

    @property
    def half(self) -> Any:
        """The half of the network that encodes."""
        return self.network

    def dequantizer(self, x: Arrays, index: int) -> Arrays:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.quantizer.decode(x["codes"])}

    def upsampling(self, x: Arrays, index: int) -> Arrays:
        """Frames to steps."""
        return {"hidden": self.network.upsample(x["latents"])}

    def decoder_transformer_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the decoder's transformer."""
        return {"hidden": self._attended(self.network.decoder_transformer, x["hidden"], index)}

    def decoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the decoder with weights, and the activation before it."""
        return {"hidden": self._stacked(self.network.decoder, x["hidden"], index)}

    def decoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution, to samples."""
        return {"audio": self.turned(self._stacked(self.network.decoder, x["hidden"], index))[..., 0]}

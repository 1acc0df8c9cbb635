"""Run EnCodec one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import Any

from tts_core.nn.layers import Arrays, Layers


class EncodecLayers(Layers):
    """Runs the stages of tts_core.codecs.encodec."""

    KIND = "encodec"

    def encoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the encoder with weights, and the activation before it."""
        return {"hidden": self._stacked(self.network.encoder, x["hidden"], index)}

    def encoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution."""
        return {"latents": self._stacked(self.network.encoder, x["hidden"], index)}

    def quantizer(self, x: Arrays, index: int) -> Arrays:
        """One codebook: its input, its codes appended to those before, and the new residual."""
        quantizer = self.network.quantizer.layers[index]
        latents = self.turned(x["latents"])
        codes = quantizer.encode(latents)
        return {
            "encodings": x["latents"],
            "codes": self.ops.concatenate((x["codes"], codes[:, None]), axis=1),
            "latents": self.turned(latents - quantizer.decode(codes)),
        }

    def dequantizer(self, x: Arrays, index: int) -> Arrays:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Arrays, index: int) -> Arrays:
        """The first convolution."""
        return {"hidden": self._stacked(self.network.decoder, x["latents"], index)}

    def decoder_layer(self, x: Arrays, index: int) -> Arrays:
        """One layer of the decoder with weights, and the activation before it."""
        return {"hidden": self._stacked(self.network.decoder, x["hidden"], index)}

    def decoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution, to samples."""
        return {"audio": self.turned(self._stacked(self.network.decoder, x["hidden"], index))[..., 0]}

    def _stacked(self, stack: Any, x: Any, index: int) -> Any:
        """Run a layer, with the activation before it, if any; of an LSTM's block, without its state."""
        before, layer = stack.layers[index - 1], stack.layers[index]
        made = layer(before(x) if index and isinstance(before, self.framework.nn.ELU) else x)
        return made[0] if isinstance(made, tuple) else made

"""Run DAC one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from tts_core.nn.layers import Arrays, Layers


class DacLayers(Layers):
    """Runs the stages of tts_core.codecs.dac."""

    KIND = "dac"

    def encoder_input(self, x: Arrays, index: int) -> Arrays:
        """The first convolution."""
        return {"hidden": self.network.encoder.conv1(self.turned(x["samples"][..., None]))}

    def encoder_block(self, x: Arrays, index: int) -> Arrays:
        """One block of the encoder."""
        block = self.network.encoder.block[index]
        return {"hidden": block(x["hidden"])}

    def encoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution."""
        encoder = self.network.encoder
        return {"latents": encoder.conv2(encoder.snake1(x["hidden"]))}

    def quantizer(self, x: Arrays, index: int) -> Arrays:
        """One codebook: its projection, its codes appended to those before, and the new residual."""
        quantizer = self.network.quantizer.quantizers[index]
        codes = quantizer.encode(x["latents"])
        return {
            "encodings": quantizer.in_proj(x["latents"]),
            "codes": self.ops.concatenate((x["codes"], codes[:, None]), axis=1),
            "latents": x["latents"] - quantizer.decode(codes),
        }

    def dequantizer(self, x: Arrays, index: int) -> Arrays:
        """All codebooks, from codes to latents."""
        return {"hidden": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Arrays, index: int) -> Arrays:
        """The first convolution."""
        return {"hidden": self.network.decoder.conv1(x["hidden"])}

    def decoder_block(self, x: Arrays, index: int) -> Arrays:
        """One block of the decoder."""
        block = self.network.decoder.block[index]
        return {"hidden": block(x["hidden"])}

    def decoder_output(self, x: Arrays, index: int) -> Arrays:
        """The last convolution, to samples in [-1, 1]."""
        decoder = self.network.decoder
        return {"audio": self.ops.tanh(self.turned(decoder.conv2(decoder.snake1(x["hidden"]))))[..., 0]}

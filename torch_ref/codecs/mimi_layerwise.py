"""Run Mimi one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from torch_ref.codecs.mimi import (
    Decoder,
    Downsampling,
    Encoder,
    Mimi,
    ResidualVectorQuantizer,
    SplitResidualVectorQuantizer,
    VectorQuantizer,
)
from torch_ref.codecs.mimi_transformer import Transformer
from torch_ref.layerwise import Layers, Tensors

Network = TypeVar("Network", bound=nn.Module)


class Half(Protocol):
    """The parts that encode."""

    encoder: Encoder
    encoder_transformer: Transformer
    downsample: Downsampling
    quantizer: SplitResidualVectorQuantizer


class EncoderLayers(Layers[Network]):
    """Runs the stages of tts_core.codecs.mimi.encode_stages."""

    @property
    def half(self) -> Half:
        """The half of the network that encodes."""
        raise NotImplementedError

    def encoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the encoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.half.encoder, x["hidden"], index)}

    def encoder_transformer_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the encoder's transformer."""
        return {"hidden": _attended(self.half.encoder_transformer, x["hidden"], index)}

    def downsampling(self, x: Tensors, index: int) -> Tensors:
        """Steps to frames."""
        return {"latents": self.half.downsample(x["hidden"])[0]}

    def quantizer_input(self, x: Tensors, index: int) -> Tensors:
        """The projection into the codebooks of quantizer `index`."""
        return {"skip": self._quantizers()[index].input_proj(x["latents"])}

    def semantic_quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: its input, its codes appended to those before, and the rest."""
        return _quantized(self._quantizers()[0], x, index)

    def acoustic_quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: its input, its codes appended to those before, and the rest."""
        return _quantized(self._quantizers()[1], x, index)

    def _quantizers(self) -> tuple[ResidualVectorQuantizer, ResidualVectorQuantizer]:
        quantizer = self.half.quantizer
        return quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer


class MimiLayers(EncoderLayers[Mimi]):
    """Runs the stages of tts_core.codecs.mimi."""

    KIND = "mimi"

    @property
    def half(self) -> Half:
        """The half of the network that encodes."""
        return self.network

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """All codebooks, from codes to latents."""
        return {"latents": self.network.quantizer.decode(x["codes"])}

    def upsampling(self, x: Tensors, index: int) -> Tensors:
        """Frames to steps."""
        return {"hidden": self.network.upsample(x["latents"])[0]}

    def decoder_transformer_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the decoder's transformer."""
        return {"hidden": _attended(self.network.decoder_transformer, x["hidden"], index)}

    def decoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the decoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.network.decoder, x["hidden"], index)}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples."""
        return {"audio": _stacked(self.network.decoder, x["hidden"], index)[:, 0]}


def _stacked(stack: Encoder | Decoder, x: Tensor, index: int) -> Tensor:
    """Run a layer, with the activation before it, if any."""
    before, layer = stack.layers[index - 1], stack.layers[index]
    return layer(before(x) if index and isinstance(before, nn.ELU) else x)


def _attended(transformer: Transformer, x: Tensor, index: int) -> Tensor:
    """Run a layer of a transformer from the start of a stream. (B, C, T) → same."""
    x = x.transpose(1, 2)
    return transformer.layers[index](x, transformer.rotation(x, 0), None)[0].transpose(1, 2)


def _quantized(quantizer: ResidualVectorQuantizer, x: Tensors, index: int) -> Tensors:
    book, rest = cast(VectorQuantizer, quantizer.layers[index]), x["skip"].transpose(1, 2)
    codes = book.encode(rest)
    return {
        "encodings": x["skip"],
        "codes": torch.cat((x["codes"], codes[:, None]), dim=1),
        "skip": (rest - book.decode(codes)).transpose(1, 2),
    }

"""The codecs and vocoders, a layer at a time. All run in float32, torch's also in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torch_ref.codecs.encodec import CausalStack, RecurrentBlock
from torch_ref.codecs.mbd import Band
from torch_ref.layerwise import Layers, Tensors
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.mbd_request import nearest_frames


class DacLayers(Layers):
    """Stages of tts_core.codecs.layer_order."""

    KIND = "dac"

    def encoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": self.network.encoder.conv1(x["samples"][:, None])}

    def encoder_block(self, x: Tensors, index: int) -> Tensors:
        """One block of the encoder."""
        block = self.network.encoder.block[index]
        return {"hidden": block(x["hidden"])}

    def encoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution."""
        encoder = self.network.encoder
        return {"latents": encoder.conv2(encoder.snake1(x["hidden"]))}

    def quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: what it searches by, its codes behind those before, and what it leaves over."""
        quantizer = self.network.quantizer.quantizers[index]
        codes = quantizer.encode(x["latents"])
        return {
            "encodings": quantizer.in_proj(x["latents"]),
            "codes": torch.cat((x["codes"], codes[:, None]), dim=1),
            "latents": x["latents"] - quantizer.decode(codes),
        }

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """Codes of all codebooks to latents."""
        return {"hidden": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": self.network.decoder.conv1(x["hidden"])}

    def decoder_block(self, x: Tensors, index: int) -> Tensors:
        """One block of the decoder."""
        block = self.network.decoder.block[index]
        return {"hidden": block(x["hidden"])}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples in [-1, 1]."""
        decoder = self.network.decoder
        return {"audio": torch.tanh(decoder.conv2(decoder.snake1(x["hidden"])))[:, 0]}


class EncodecLayers(Layers):
    """Stages of tts_core.codecs.layer_order."""

    KIND = "encodec"

    def encoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the encoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.network.encoder, x["hidden"], index)}

    def encoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution."""
        return {"latents": _stacked(self.network.encoder, x["hidden"], index)}

    def quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: what it searches by, its codes behind those before, and what it leaves over."""
        quantizer = self.network.quantizer.layers[index]
        latents = x["latents"].transpose(1, 2)
        codes = quantizer.encode(latents)
        return {
            "encodings": x["latents"],
            "codes": torch.cat((x["codes"], codes[:, None]), dim=1),
            "latents": (latents - quantizer.decode(codes)).transpose(1, 2),
        }

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """Codes of all codebooks to latents."""
        return {"latents": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": _stacked(self.network.decoder, x["latents"], index)}

    def decoder_layer(self, x: Tensors, index: int) -> Tensors:
        """One layer of the decoder with weights, and the activation before it."""
        return {"hidden": _stacked(self.network.decoder, x["hidden"], index)}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples."""
        return {"audio": _stacked(self.network.decoder, x["hidden"], index)[:, 0]}


class VocosLayers(Layers):
    """Stages of tts_core.codecs.layer_order."""

    KIND = "vocos"

    def features(self, x: Tensors, index: int) -> Tensors:
        """Codes of all codebooks to vectors."""
        return {"rows": self.network.feature_extractor(x["codes"])}

    def embedding(self, x: Tensors, index: int) -> Tensors:
        """The first convolution and the norm behind it."""
        backbone = self.network.backbone
        rows = backbone.embed(x["rows"].transpose(1, 2)).transpose(1, 2)
        return {"rows": backbone.norm(rows, int(x["bandwidth"]))}

    def block(self, x: Tensors, index: int) -> Tensors:
        """One block of the backbone."""
        return {"rows": self.network.backbone.convnext[index](x["rows"], int(x["bandwidth"]))}

    def norm(self, x: Tensors, index: int) -> Tensors:
        """The backbone's last norm."""
        return {"rows": self.network.backbone.final_layer_norm(x["rows"])}

    def head(self, x: Tensors, index: int) -> Tensors:
        """Spectra, and their samples."""
        return {"audio": self.network.head(x["rows"])}


class Bands(nn.Module):
    """Multi-band diffusion's bands under their canonical names, all without weights."""

    def __init__(self, config: MbdConfig):
        super().__init__()
        self.bands = nn.ModuleList(Band(band, config.sample_rate) for band in config.bands)


class MbdLayers(Layers):
    """Stages of tts_core.codecs.layer_order, of one band."""

    KIND = "mbd"

    def build(self, config: MbdConfig) -> Bands:
        """All bands: the network itself has one at a time."""
        return Bands(config)

    def processor(self, x: Tensors, index: int) -> Tensors:
        """What brings the band's own sub-bands to their levels."""
        return {"processed": self._band(x).process(x["sound"])}

    def down(self, x: Tensors, index: int) -> Tensors:
        """One level down, and the step's vector; level 0 reads the noisy sound."""
        unet = self._band(x).unet
        table = [unet.embedding, *unet.embeddings][index]
        z = unet.encoders[index](x["hidden"]) + table.weight[x["step"]][..., None]
        return {"hidden": z, f"skip{index}": z}

    def condition(self, x: Tensors, index: int) -> Tensors:
        """The codec's latents, into the last skip alone."""
        unet, z = self._band(x).unet, x["hidden"]
        frames = torch.as_tensor(nearest_frames(z.shape[2], x["latents"].shape[2]))
        last = f"skip{len(unet.encoders) - 1}"
        return {last: x[last] + unet.conv_codec(x["latents"])[:, :, frames], "hidden": torch.zeros_like(z)}

    def up(self, x: Tensors, index: int) -> Tensors:
        """One level up."""
        unet = self._band(x).unet
        skip = x[f"skip{len(unet.encoders) - 1 - index}"]
        return {"hidden": unet.decoders[index](x["hidden"][:, :, : skip.shape[2]] + skip)}

    def estimate(self, x: Tensors, index: int) -> Tensors:
        """The last level up, cut to the sound's length."""
        return {"estimate": self.up(x, index)["hidden"][:, 0, : x["sound"].shape[1]]}

    def _band(self, x: Tensors) -> Band:
        return self.network.bands[int(x["band"])]


def _stacked(stack: CausalStack, x: Tensor, index: int) -> Tensor:
    """A layer, with the activation before it if there is one."""
    before, layer = stack.layers[index - 1], stack.layers[index]
    made = layer(before(x) if index and isinstance(before, nn.ELU) else x)
    return made[0] if isinstance(layer, RecurrentBlock) else made

"""Run multi-band diffusion one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from torch_ref.codecs.mbd import Band
from torch_ref.layerwise import Layers, Tensors
from tts_core.codecs.mbd import MbdConfig, nearest_frames


class Bands(nn.Module):
    """Multi-band diffusion's bands under their canonical names, without weights."""

    def __init__(self, config: MbdConfig):
        super().__init__()
        self.bands = nn.ModuleList(Band(band, config.sample_rate) for band in config.bands)


class MbdLayers(Layers[Bands]):
    """Runs the stages of one band, from tts_core.codecs.mbd."""

    KIND = "mbd"

    def build(self, config: object) -> Bands:
        """Build all bands; the network itself has one at a time."""
        assert isinstance(config, MbdConfig)
        return Bands(config)

    def processor(self, x: Tensors, index: int) -> Tensors:
        """The processor that sets the levels of the band's sub-bands."""
        return {"processed": self._band(x).process(x["sound"])}

    def down(self, x: Tensors, index: int) -> Tensors:
        """One level down, with the step's embedding; level 0 reads the noisy sound."""
        unet = self._band(x).unet
        table = [unet.embedding, *unet.embeddings][index]
        z = unet.encoders[index](x["hidden"]) + table.weight[x["step"]][..., None]
        return {"hidden": z, f"skip{index}": z}

    def condition(self, x: Tensors, index: int) -> Tensors:
        """The codec's latents, added only to the last skip."""
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
        """The last convolution, cut to the sound's length."""
        return {"estimate": self.up(x, index)["hidden"][:, 0, : x["sound"].shape[1]]}

    def _band(self, x: Tensors) -> Band:
        return cast(Band, self.network.bands[int(x["band"])])

"""Run multi-band diffusion one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import cast

import mlx.core as mx
from mlx import nn

from mlx_port.codecs.mbd import Band
from mlx_port.layerwise import Layers, Tensors
from tts_core.codecs.mbd import MbdConfig, nearest_frames


class Bands(nn.Module):
    """Multi-band diffusion's bands under their canonical names, without weights."""

    def __init__(self, config: MbdConfig):
        super().__init__()
        self.bands = [Band(band, config.sample_rate) for band in config.bands]


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
        z = unet.encoders[index](x["hidden"]) + table.weight[x["step"]]
        return {"hidden": z, f"skip{index}": z}

    def condition(self, x: Tensors, index: int) -> Tensors:
        """The codec's latents, added only to the last skip."""
        unet, z = self._band(x).unet, x["hidden"]
        frames = mx.array(nearest_frames(z.shape[1], x["latents"].shape[1]))
        last = f"skip{len(unet.encoders) - 1}"
        return {last: x[last] + unet.conv_codec(x["latents"])[:, frames], "hidden": mx.zeros_like(z)}

    def up(self, x: Tensors, index: int) -> Tensors:
        """One level up."""
        unet = self._band(x).unet
        skip = x[f"skip{len(unet.encoders) - 1 - index}"]
        return {"hidden": unet.decoders[index](x["hidden"][:, : skip.shape[1]] + skip)}

    def estimate(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, cut to the sound's length."""
        return {"estimate": self.up(x, index)["hidden"][:, : x["sound"].shape[1], 0]}

    def _band(self, x: Tensors) -> Band:
        return self.network.bands[cast(int, x["band"].item())]

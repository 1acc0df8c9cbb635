"""Run multi-band diffusion one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from typing import Any

from tts_core.codecs.mbd import nearest_frames
from tts_core.nn.layers import Arrays, Layers


class MbdLayers(Layers):
    """Runs the stages of one band, from tts_core.codecs.mbd, in a network of all bands."""

    KIND, NETWORK = "mbd", "codecs.mbd:Bands"

    def processor(self, x: Arrays, index: int) -> Arrays:
        """The processor that sets the levels of the band's sub-bands."""
        return {"processed": self._band(x).process(x["sound"])}

    def down(self, x: Arrays, index: int) -> Arrays:
        """One level down, with the step's embedding; level 0 reads the noisy sound."""
        unet = self._band(x).unet
        table = [unet.embedding, *unet.embeddings][index]
        made = self.turned(unet.encoders[index](x["hidden"])) + table.weight[x["step"]]
        return {"hidden": self.turned(made), f"skip{index}": self.turned(made)}

    def condition(self, x: Arrays, index: int) -> Arrays:
        """The codec's latents, added only to the last skip."""
        unet = self._band(x).unet
        last = f"skip{len(unet.encoders) - 1}"
        skip, added = self.turned(x[last]), self.turned(unet.conv_codec(x["latents"]))
        frames = self.framework.array(nearest_frames(skip.shape[1], added.shape[1]))
        return {last: self.turned(skip + added[:, frames]), "hidden": self.ops.zeros_like(x["hidden"])}

    def up(self, x: Arrays, index: int) -> Arrays:
        """One level up."""
        unet = self._band(x).unet
        skip = self.turned(x[f"skip{len(unet.encoders) - 1 - index}"])
        hidden = self.turned(x["hidden"])[:, : skip.shape[1]] + skip
        return {"hidden": unet.decoders[index](self.turned(hidden))}

    def estimate(self, x: Arrays, index: int) -> Arrays:
        """The last convolution, cut to the sound's length."""
        return {"estimate": self.turned(self.up(x, index)["hidden"])[:, : x["sound"].shape[1], 0]}

    def _band(self, x: Arrays) -> Any:
        return self.network.bands[int(x["band"].item())]

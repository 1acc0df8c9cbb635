"""Run Vocos one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from tts_core.nn.layers import Arrays, Layers


class VocosLayers(Layers):
    """Runs the stages of tts_core.codecs.vocos."""

    KIND = "vocos"

    def features(self, x: Arrays, index: int) -> Arrays:
        """All codebooks, from codes to vectors."""
        return {"rows": self.network.feature_extractor(x["codes"])}

    def embedding(self, x: Arrays, index: int) -> Arrays:
        """The first convolution and the norm after it."""
        backbone = self.network.backbone
        rows = self.turned(backbone.embed(self.turned(x["rows"])))
        return {"rows": backbone.norm(rows, int(x["bandwidth"].item()))}

    def block(self, x: Arrays, index: int) -> Arrays:
        """One block of the backbone."""
        return {"rows": self.network.backbone.convnext[index](x["rows"], int(x["bandwidth"].item()))}

    def norm(self, x: Arrays, index: int) -> Arrays:
        """The backbone's last norm."""
        return {"rows": self.network.backbone.final_layer_norm(x["rows"])}

    def head(self, x: Arrays, index: int) -> Arrays:
        """The spectrum and its samples."""
        return {"audio": self.network.head(x["rows"])}

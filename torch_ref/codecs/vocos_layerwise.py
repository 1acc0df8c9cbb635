"""Run Vocos one layer at a time, in float32; in torch also in float64."""

from __future__ import annotations

from torch_ref.codecs.vocos import Vocos
from torch_ref.layerwise import Layers, Tensors


class VocosLayers(Layers[Vocos]):
    """Runs the stages of tts_core.codecs.vocos."""

    KIND = "vocos"

    def features(self, x: Tensors, index: int) -> Tensors:
        """All codebooks, from codes to vectors."""
        return {"rows": self.network.feature_extractor(x["codes"])}

    def embedding(self, x: Tensors, index: int) -> Tensors:
        """The first convolution and the norm after it."""
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
        """The spectrum and its samples."""
        return {"audio": self.network.head(x["rows"])}

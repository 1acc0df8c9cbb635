"""Map of Vocos for EnCodec's codes: charactr's names are canonical."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout, canonical
from converters.rules.assignment import Drop
from tts_core.codecs.vocos import VocosConfig, read_published, read_yaml

NAMES = (
    r"feature_extractor\.codebook_weights|head\.(out|istft)\."
    r"|backbone\.(embed|norm|final_layer_norm|convnext\.\d+\.(gamma|dwconv|norm|pwconv[12]))\b"
)


_WINDOW = Drop("head.istft.window", "periodic Hann, recomputed from n_fft", optional=True)


def config_missing(found: Found) -> str | None:
    """Return config.yaml if it is missing."""
    return None if (found.folder / "config.yaml").exists() else "config.yaml"


def read(found: Found) -> VocosConfig:
    """Read config.yaml and the tensors' shapes."""
    return read_published(read_yaml(found.text("config.yaml")), found.checkpoint.shapes)


LAYOUTS = {"vocos_charactr": Layout("vocos", NAMES, canonical("vocos", _WINDOW), read, config_missing)}
